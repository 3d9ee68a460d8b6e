"""One replay of a variant, on one engine, on several, or with prefill and decode apart, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import SLO
from tokenyard.policies.named import PolicyMaker
from tokenyard.sched.observer import Observers, StepObserver
from tokenyard.sim.parallel.replay import ParallelResult
from tokenyard.sim.replay import Progress
from tokenyard.sim.settings import ReplaySettings, replay_engines
from tokenyard.sim.split import KVLink, SplitResult, replay_split
from tokenyard.sim.workload.record import Workload
from tokenyard.sim.workload.turns import turn_orders
from tokenyard.trace.emit.recorder import TraceRecorder
from tokenyard.trace.emit.writer import TraceWriter
from tokenyard.trace.format.config import TraceConfig
from tokenyard.trace.format.schema import TraceStart

__all__ = ["DecodeSide", "EngineRecord", "HeldBy", "Outcome", "Prepared", "replayed"]


class DecodeSide(NamedTuple):
    """What a split has besides its prefill engines."""

    engines: ReplaySettings
    link: KVLink


class EngineRecord(NamedTuple):
    """How the trace of one engine is written."""

    config: TraceConfig
    """Its path is relative to the folder of the variant."""
    start: TraceStart


class Prepared(NamedTuple):
    """A variant that can be replayed."""

    workload: Workload
    replays: ReplaySettings
    """Of a split, those of its prefill engines."""
    policy: PolicyMaker
    gpu: str | None
    gpus: int | None
    """How many GPUs all engines have; None if nobody knows, or that changes."""
    gpus_per_replica: int | None = None
    """GPUs of one of several replicas that come and go."""
    decode: DecodeSide | None = None
    """Of a split of prefill and decode; None: every engine does both."""
    records: tuple[EngineRecord, ...] = ()
    """Of each engine, those that prefill before those that decode; empty where no trace can be written."""


class HeldBy(NamedTuple):
    """What most waiting time was lost to."""

    reason: str
    seconds: float
    """Request-seconds."""
    side: str | None = None
    """``prefill`` or ``decode``, of a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a replay came to."""

    report: Report
    """Of a split: that of its decode engines, whose latencies are those that clients see."""
    refused: int
    """Requests that were not served."""
    seconds: float | None
    """From the first step of any engine to the last moment."""
    held: HeldBy | None
    """None: nobody was held back."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """What a split has besides: how busy its sides are."""
    traces: tuple[Path, ...] = ()
    """Of each engine its steps file, those that decode first; empty unless all were asked for and are whole."""


def replayed(
    variant: Prepared,
    slos: Sequence[SLO],
    watch: StepObserver | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    traces: Path | None = None,
) -> Outcome:
    """Replay a variant; ``watch`` sees what clients wait for: the decode engines of a split, else all engines.

    ``traces``: a folder that gets its traces, as far as they can be written. Raises TokenyardError where it cannot be
    replayed, and whatever ``on_progress`` raises.
    """
    with ExitStack() as stack:
        engines = _Engines(variant, traces, stack)
        run = _together if variant.decode is None else _apart
        outcome = run(variant, engines, slos, watch, on_progress)
    return replace(outcome, traces=engines.written())


class _Engines:
    """The traces of a variant's engines."""

    def __init__(self, variant: Prepared, folder: Path | None, stack: ExitStack) -> None:
        self._variant = variant
        self._turns = turn_orders(variant.workload) if folder is not None else None
        self._writers = [_writer(each, folder, stack) for each in variant.records] if folder is not None else []

    def recorders(self, builders: Sequence[ReportBuilder], first: int = 0) -> list[TraceRecorder]:
        """For so many engines, from the ``first`` on."""
        if not self._writers:
            return [TraceRecorder(None, builder) for builder in builders]
        chosen = zip(self._writers[first:], self._variant.records[first:], builders, strict=False)
        return [
            TraceRecorder(writer, builder, start=record.start, turns=self._turns) for writer, record, builder in chosen
        ]

    def written(self) -> tuple[Path, ...]:
        """The steps files, once the replay is over."""
        paths = [each.config.steps_path for each in self._writers if each.is_whole]
        if len(paths) < len(self._writers):
            return ()
        decode = self._variant.decode
        first = 0 if decode is None else self._variant.replays.fleet.num_engines
        return tuple(path for path in (*paths[first:], *paths[:first]) if path is not None)


def _writer(record: EngineRecord, folder: Path, stack: ExitStack) -> TraceWriter:
    path = folder / (record.config.path or Path())
    writer = stack.enter_context(TraceWriter(replace(record.config, path=path)))
    try:
        writer.claim()
    except OSError as error:
        raise ConfigError("traces", str(path), f"cannot be written: {error.strerror or error}") from None
    return writer


def _together(
    variant: Prepared,
    engines: _Engines,
    slos: Sequence[SLO],
    watch: StepObserver | None,
    on_progress: Callable[[Progress], None] | None,
) -> Outcome:
    """Every engine prefills and decodes."""
    builders = [ReportBuilder(slos) for _ in range(variant.replays.fleet.num_engines)]
    result = replay_engines(
        variant.workload,
        variant.replays,
        observers=_watched(engines.recorders(builders), watch),
        policies=[variant.policy() for _ in builders],
        on_progress=on_progress,
    )
    replicas = result.replicas if isinstance(result, ParallelResult) else None
    report = msgspec.structs.replace(_report(builders), clients=result.clients, replicas=replicas)
    return Outcome(
        report=report,
        refused=len(result.refused) + result.num_left_out,
        seconds=report.duration_s,
        held=_most(_held(report)),
    )


def _apart(
    variant: Prepared,
    engines: _Engines,
    slos: Sequence[SLO],
    watch: StepObserver | None,
    on_progress: Callable[[Progress], None] | None,
) -> Outcome:
    """Some engines prefill, others decode."""
    settings, decode = variant.replays, variant.decode
    assert decode is not None
    sizes = settings.fleet.num_engines, decode.engines.fleet.num_engines
    first, second = ([ReportBuilder(slos) for _ in range(size)] for size in sizes)
    result = replay_split(
        variant.workload,
        settings.scheduler,
        settings.cache,
        settings.latency,
        decode.link,
        fleet=settings.fleet,
        router=settings.router,
        decode=decode.engines,
        observers=(engines.recorders(first), _watched(engines.recorders(second, sizes[0]), watch)),
        policy=variant.policy,
        skip_refused=settings.skip_refused,
        on_progress=on_progress,
    )
    prefill, report = _report(first), _report(second)
    return Outcome(
        report=report,
        refused=len(result.refused) + result.num_left_out,
        seconds=_report([*first, *second]).duration_s,
        held=_most([*_held(prefill, "prefill"), *_held(report, "decode")]),
        figures=dict(_busy(result)),
    )


def _watched(recorders: Sequence[TraceRecorder], watch: StepObserver | None) -> list[StepObserver]:
    return [each if watch is None else Observers(each, watch) for each in recorders]


def _report(builders: Sequence[ReportBuilder]) -> Report:
    """Of all engines that these are of."""
    whole = builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)
    return whole.report()


def _busy(result: SplitResult) -> Iterator[tuple[str, float]]:
    """Shares of the run, each of one engine on average, as ``tokenyard split`` has them."""
    seconds = result.seconds or 1.0
    yield "split.prefill", result.prefill.busy_seconds / seconds
    yield "split.decode", result.decode.busy_seconds / seconds
    yield "split.link", result.link_busy_seconds / seconds


def _held(report: Report, side: str | None = None) -> list[HeldBy]:
    return [HeldBy(name, reason.seconds, side) for name, reason in report.recorded_reasons.items()]


def _most(held: Sequence[HeldBy]) -> HeldBy | None:
    """None if nobody lost any time."""
    found = max(held, key=lambda each: each.seconds, default=None)
    return found if found is not None and found.seconds > 0 else None
