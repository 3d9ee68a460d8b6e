"""The worker of ``plan`` and ``sweep``: one variant in, one row out, in this process or in another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from typing import Protocol

import msgspec

from tokenyard.errors import TokenyardError
from tokenyard.explain.report.slo import SLO
from tokenyard.sim.replay import Progress
from tokenyard.sim.sweep.deciding import Decided, Rival, SLOWatch
from tokenyard.sim.sweep.replaying import Outcome, Prepared, replayed
from tokenyard.sim.sweep.row import Row, Settings, figures_of, key_of, words_of

__all__ = ["Measuring", "Subject", "folder_of"]

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_=+.-]+")
_LONGEST_NAME = 80


class Subject(Protocol):
    """What variants are made of: a workload and a deployment, or a recorded run. It can be pickled."""

    def prepared(self, settings: Settings) -> Prepared:
        """The variant. Raises TokenyardError where vLLM would not start with it, or it cannot be asked about."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Measures variants of one subject. It can be pickled, and called in any process."""

    subject: Subject
    slos: tuple[SLO, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    """GPU -> price of an hour."""
    traces: Path | None = None
    """A folder in which every variant that is replayed leaves its traces, in one of its own; None: nowhere."""

    def __call__(
        self,
        settings: Settings,
        *,
        load: float = 1.0,
        stops: bool = False,
        slack: float = 1.0,
        rivals: Sequence[Rival] = (),
        one_at_a_time: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Row:
        """Replay one variant, its requests arriving ``load`` times as fast, or ``one_at_a_time``.

        With ``stops`` the replay ends as soon as it is certain that a bound is missed (by more than ``slack`` times its
        value), or that it cannot beat one of ``rivals`` at the same cost or less.
        """
        try:
            variant = self.subject.prepared(settings)
            workload = variant.workload.with_rate(load)
            if one_at_a_time:
                workload = workload.with_max_concurrency(1)
        except TokenyardError as error:
            return Row(settings=dict(settings), load=load, problem=str(error), replays=0)
        watch = SLOWatch(self.slos, workload, slack=slack) if stops else None
        price = None if variant.gpu is None else self.prices.get(variant.gpu)
        cost = None if price is None or variant.gpus is None else price * variant.gpus
        try:
            if any(rival.makes_pointless(cost, variant.gpus) for rival in rivals):
                raise Decided("costs more than one that is within every bound: not replayed", was_replayed=False)
            beaten = [rival for rival in rivals if rival.costs_no_more_than(cost, variant.gpus)]
            listener = _listener(watch, beaten, on_progress)
            folder = None if self.traces is None else self.traces / folder_of(settings)
            outcome = replayed(variant._replace(workload=workload), self.slos, watch, listener, traces=folder)
        except TokenyardError as error:
            return Row(settings=dict(settings), load=load, problem=str(error))
        except Decided as decided:
            return Row(
                settings=dict(settings),
                load=load,
                stopped=decided.why,
                met=decided.met,
                requests=len(workload) if decided.was_replayed else 0,
                gpu=variant.gpu,
                gpus=variant.gpus,
                cost_per_hour=cost,
                tightness_above=decided.at_least,
                tightest=decided.bound,
                replays=int(decided.was_replayed),
            )
        gpus = variant.gpus
        replicas = outcome.report.replicas
        if gpus is None and replicas is not None and variant.gpus_per_replica is not None:
            gpus = replicas.max_held * variant.gpus_per_replica
            cost = None if price is None else price * replicas.mean_held * variant.gpus_per_replica
        row = _row(settings, load, variant._replace(gpus=gpus), outcome, cost, len(workload))
        if self.traces is None:
            return row
        return msgspec.structs.replace(
            row, traces=[each.relative_to(self.traces).as_posix() for each in outcome.traces]
        )


def folder_of(settings: Settings) -> str:
    """A name for the traces of a variant, which people can read: the same for the same settings, in whatever order."""
    words = words_of(dict(sorted(settings.items())))
    digest = blake2s(key_of(settings).encode(), digest_size=3).hexdigest()
    return f"{_NOT_IN_NAMES.sub('_', words)[:_LONGEST_NAME]}-{digest}"


def _listener(
    watch: SLOWatch | None, rivals: Sequence[Rival], on_progress: Callable[[Progress], None] | None
) -> Callable[[Progress], None] | None:
    if watch is None:
        return on_progress

    def listen(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(progress)
        watch.decide(progress.now, rivals)

    return listen


def _row(
    settings: Settings, load: float, variant: Prepared, outcome: Outcome, cost: float | None, requests: int
) -> Row:
    report, held = outcome.report, outcome.held
    tokens, seconds = report.output_tokens, outcome.seconds
    goodput = report.goodput
    tight = max(
        ((each.value_ms / each.bound_ms, each.name) for each in goodput.objectives if each.value_ms is not None)
        if goodput is not None
        else (),
        default=(None, None),
    )
    return Row(
        settings=dict(settings),
        load=load,
        requests=requests,
        refused=outcome.refused,
        met=None if goodput is None else goodput.met,
        tightness=tight[0],
        tightest=tight[1],
        figures={**figures_of(report), **outcome.figures},
        held_by=None if held is None else held.reason,
        held_s=0.0 if held is None else held.seconds,
        held_at=None if held is None else held.side,
        gpu=variant.gpu,
        gpus=variant.gpus,
        cost_per_hour=cost,
        cost_per_million_tokens=cost * seconds / 3600 / tokens * 1e6
        if cost is not None and tokens and seconds
        else None,
    )
