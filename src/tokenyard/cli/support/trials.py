"""Replays what a report proposes, on the same workload, and keeps what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from itertools import zip_longest

import msgspec

from tokenyard.cli.support.flags import Run, TraceFlags
from tokenyard.cli.support.setup import Setup, prepare
from tokenyard.errors import TokenyardError
from tokenyard.explain.advice.candidates import Change, changes_for
from tokenyard.explain.advice.rule import Advice
from tokenyard.explain.advice.trial import Trial
from tokenyard.explain.advice.verdict import best_of, trial_of
from tokenyard.explain.report.report import Report

__all__ = ["with_trials"]

Replayer = Callable[[Setup, Run, str], Report]
"""Replays a setup and makes its report; the text says what for."""


def with_trials(flags: Run, setup: Setup, report: Report, replay: Replayer, *, most: int | None = None) -> Report:
    """The report, each advice with the trial that helps most; advice that nothing came of is left out.

    ``most`` bounds the number of trials: advice whose changes were not reached stays as it is.
    """
    settings = asdict(setup.settled.hardware) | asdict(setup.settled.scheduler)
    changes = [changes_for(each, settings, report) for each in report.advice]
    known: dict[Change, Trial] = {}
    for change in _in_turns(changes):
        if change not in known and (most is None or len(known) < most):
            known[change] = _tried(flags, setup, report, change, replay)
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
    return msgspec.structs.replace(report, advice=advice, tried=[trial for trial in in_vain if trial not in kept])


def _in_turns(changes: Sequence[Sequence[Change]]) -> Iterator[Change]:
    """The first change of each advice, then the second of each ..."""
    for round_of_changes in zip_longest(*changes):
        yield from (change for change in round_of_changes if change is not None)


def _tried(flags: Run, setup: Setup, report: Report, change: Change, replay: Replayer) -> Trial:
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
