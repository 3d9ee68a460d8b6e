"""Replays what a report proposes, on the same workload, and keeps what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from tokenyard.cli.support.flags import Run, TraceFlags
from tokenyard.cli.support.setup import Setup, prepare
from tokenyard.errors import TokenyardError
from tokenyard.explain.advice.candidates import Change, changes_for
from tokenyard.explain.advice.rule import Advice
from tokenyard.explain.advice.trial import Trial
from tokenyard.explain.advice.verdict import best_of, trial_of
from tokenyard.explain.render.units import duration
from tokenyard.explain.report.report import Report
from tokenyard.sim.workload.part import busiest_part

__all__ = ["with_trials"]

Replayer = Callable[[Setup, Run, str], Report]
"""Replays a setup and makes its report; the text says what for."""


def with_trials(flags: Run, setup: Setup, report: Report, replay: Replayer, *, most_steps: int | None = None) -> Report:
    """The report, each advice with the trial that helps most; advice that nothing came of is left out.

    ``most_steps`` bounds the steps of all trials: beyond it they are replays of the busiest part of the workload, and
    of as few trials as have room where it cannot be parted; advice whose changes were not reached stays as it is.
    """
    settings = asdict(setup.settled.hardware) | asdict(setup.settled.scheduler)
    changes = [changes_for(each, settings, report) for each in report.advice]
    wanted = list(dict.fromkeys(_in_turns(changes)))
    ground = _ground(flags, setup, report, replay, len(wanted), most_steps)
    known = {change: _tried(flags, ground, change, replay) for change in wanted[: ground.most]}
    advice: list[Advice] = []
    in_vain: list[Trial] = []
    for each, wanted in zip(report.advice, changes, strict=True):
        trials = [known[change] for change in wanted if change in known]
        best = best_of(each.rule, trials)
        if best is not None:
            better = msgspec.structs.replace(each, setting=best.setting, now=best.now, trial=best)
            advice += [better] * (best not in [other.trial for other in advice])
        elif wanted and not trials:
            advice.append(each)
        else:
            in_vain += [trial for trial in trials if trial not in in_vain]
    kept = [each.trial for each in advice]
    tried = [trial for trial in in_vain if trial not in kept]
    return msgspec.structs.replace(report, advice=advice, tried=tried, tried_on=ground.words if known else None)


class _Ground(NamedTuple):
    """What trials are compared on."""

    setup: Setup
    report: Report
    """Of the run as it is, on the same requests as the trials."""
    words: str | None
    """Which requests those are; None: all."""
    most: int | None
    """Trials at most; None: all."""


def _ground(
    flags: Run, setup: Setup, report: Report, replay: Replayer, num_trials: int, most_steps: int | None
) -> _Ground:
    """The whole workload if all trials on it have room, else a part, on which the run is replayed as it is as well."""
    steps = max(report.steps, 1)
    if most_steps is None or num_trials * steps <= most_steps:
        return _Ground(setup, report, None, None)
    share = most_steps / ((num_trials + 1) * steps)
    count = max(1, int(share * len(setup.workload)))
    part = busiest_part(setup.workload, count) if count < len(setup.workload) else None
    if part is None:
        return _Ground(setup, report, None, most_steps // steps)
    smaller = replace(setup, workload=part.workload)
    words = (
        f"{len(part.workload):,} of {len(setup.workload):,} requests, the busiest stretch "
        f"({duration(part.first)} to {duration(part.last)})"
    )
    return _Ground(smaller, replay(smaller, flags, f"the run on {words}"), words, None)


def _in_turns(changes: Sequence[Sequence[Change]]) -> Iterator[Change]:
    """The first change of each advice, then the second of each ..."""
    for round_of_changes in zip_longest(*changes):
        yield from (change for change in round_of_changes if change is not None)


def _tried(flags: Run, ground: _Ground, change: Change, replay: Replayer) -> Trial:
    setup, report = ground.setup, ground.report
    try:
        changed = prepare(_with(flags, change), setup.workload)
        after = replay(changed, flags, f"{change.setting} {change.then}")
    except TokenyardError as error:
        return trial_of(change, report, None, str(error))
    if after.requests_finished != report.requests_finished:
        return trial_of(change, report, None, "another number of requests is served")
    return trial_of(change, report, after)


def _with(flags: Run, change: Change) -> Run:
    """The same run with one setting changed, and without a trace."""
    for group in ("hardware", "scheduler"):
        part = getattr(flags, group)
        if change.setting in {field.name for field in fields(part)}:
            return replace(flags, **{group: replace(part, **{change.setting: change.then})}, output=TraceFlags())
    raise AssertionError(f"{change.setting} is a flag of no group")
