"""Asking: the recorded run is replayed as it was, and held against its trace; then with other settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tokenyard.errors import ConfigError
from tokenyard.explain.compare.figures import figures
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.policies.named import policy_maker
from tokenyard.sched.observer import Observers, StepObserver
from tokenyard.sim.latency.leaning import Reach
from tokenyard.sim.replay import Progress, ReplayResult, replay
from tokenyard.sim.whatif.answer import (
    FIGURES,
    Check,
    FigureAnswer,
    Mover,
    ReasonAnswer,
    SelfCheck,
    VariantAnswer,
    WhatIf,
    change_of,
)
from tokenyard.sim.whatif.reach import WatchedLatency
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.whatif.settings import Variant, as_it_was
from tokenyard.sim.whatif.watching import EndTimes, StepsAlike
from tokenyard.sim.workload.policy_doubts import doubt_of_policy
from tokenyard.trace.emit.recorder import TraceRecorder
from tokenyard.trace.read.reader import TraceReader

__all__ = ["Baseline", "answer", "replay_as_it_was"]

OnProgress = Callable[[Progress], None]

TOLERANCE = 0.10
"""Of the means below: further off, and the answer rests on sand."""
_TOLERATED_MS = 1.0
"""A difference of a millisecond is none that anybody asks about."""
_JUDGED = ("ttft_ms.mean", "tpot_ms.mean", "e2e_ms.mean")
_MOVED = 0.05
_MOST_MOVERS = 5
_MOST_REASONS = 8


class Baseline(NamedTuple):
    """The replay of what was."""

    report: Report
    ends: Mapping[str, float]
    """Request id -> seconds from arrival to end."""
    check: SelfCheck


class _Replayed(NamedTuple):
    report: Report
    ends: Mapping[str, float]
    result: ReplayResult
    doubt: str | None
    """Of steps larger than the trace has."""


def replay_as_it_was(run: RecordedRun, on_progress: OnProgress | None = None) -> Baseline:
    """Replay the run with its own settings, and say how far that repeats it."""
    alike = StepsAlike(TraceReader(run.source, requests=False))
    report, ends, _, _ = _replayed(run, as_it_was(run), on_progress, alike)
    recorded_steps = alike.finish()
    checks = [Check.of(name, was, now) for name, was, now in _both(run.report, report)]
    failed = [check.name for check in checks if check.name in _JUDGED and not _is_close(check)]
    check = SelfCheck(
        checks=checks,
        equal_steps=alike.equal,
        recorded_steps=recorded_steps,
        parting=alike.parting,
        failed=failed,
    )
    return Baseline(report, ends, check)


def answer(
    run: RecordedRun,
    baseline: Baseline,
    variants: Sequence[Variant],
    on_progress: OnProgress | None = None,
) -> WhatIf:
    """What would have been under each of ``variants``. Raises ConfigError if two are the same."""
    if len({variant.name for variant in variants}) < len(variants):
        raise ConfigError("set", " ".join(variant.name for variant in variants), "is given twice: give it once")
    return WhatIf(
        source=run.source,
        model=run.start.model,
        gpu=run.start.gpu,
        requests=len(run.workload),
        notes=list(run.workload.notes),
        fit=run.fit,
        self_check=baseline.check,
        variants=[_answered(run, baseline, variant, on_progress) for variant in variants],
    )


def _replayed(run: RecordedRun, variant: Variant, on_progress: OnProgress | None, *watchers: StepObserver) -> _Replayed:
    builder, ends = ReportBuilder(), EndTimes()
    latency = WatchedLatency(variant.latency, Reach.of(run.measured))
    result = replay(
        variant.workload,
        variant.scheduler,
        variant.cache,
        latency,
        pace=run.pace if variant.keeps_time else None,
        observer=Observers(TraceRecorder(None, builder), ends, *watchers),
        policy=policy_maker(variant.scheduler.policy, "scheduling_policy")(),
        kv_transfer=variant.kv_transfer,
        speculation=variant.speculation,
        skip_refused=True,
        on_progress=on_progress,
    )
    return _Replayed(builder.report(), ends.seconds, result, latency.doubt(run.fit.terms_of or run.fit.leans_on))


def _both(first: Report, second: Report) -> list[tuple[str, float | None, float | None]]:
    """The figures that are answered, of two reports."""
    known = {figure.name: figure for figure in figures(first, second)}
    return [(name, known[name].a, known[name].b) for name in FIGURES if name in known]


def _is_close(check: Check) -> bool:
    if check.recorded is None or check.replayed is None or check.error is None:
        return check.recorded is None
    return abs(check.error) <= TOLERANCE or abs(check.replayed - check.recorded) <= _TOLERATED_MS


def _answered(run: RecordedRun, baseline: Baseline, variant: Variant, on_progress: OnProgress | None) -> VariantAnswer:
    report, ends, result, doubt = _replayed(run, variant, on_progress)
    refused = len(result.refused) + result.num_left_out
    if refused == len(variant.workload):
        raise ConfigError("set", variant.name, f"serves none of the requests: {result.refused[0].problem}")
    recorded = {check.name: check for check in baseline.check.checks}
    ranges = _ranges(run, variant, report, on_progress)
    movers = [
        Mover(request_id=request_id, baseline_s=before, variant_s=ends[request_id])
        for request_id, before in baseline.ends.items()
        if request_id in ends and abs(ends[request_id] - before) > _MOVED * before
    ]
    movers.sort(key=lambda mover: mover.variant_s - mover.baseline_s)
    faster = [mover for mover in movers if mover.variant_s < mover.baseline_s]
    slower = [mover for mover in reversed(movers) if mover.variant_s > mover.baseline_s]
    return VariantAnswer(
        name=variant.name,
        figures=[
            FigureAnswer(
                name=name,
                recorded=recorded[name].recorded if name in recorded else None,
                baseline=before,
                variant=after,
                uncertainty=_uncertainty(recorded.get(name)) if variant.extremes is None else None,
                change=None if refused else change_of(before, after),
                low=ranges[name][0] if name in ranges else None,
                high=ranges[name][1] if name in ranges else None,
            )
            for name, before, after in _both(baseline.report, report)
        ],
        faster=len(faster),
        slower=len(slower),
        winners=faster[:_MOST_MOVERS],
        losers=slower[:_MOST_MOVERS],
        reasons=_reasons(baseline.report, report),
        refused=refused,
        serve_flags=list(variant.flags) if variant.is_vllms and not refused else [],
        notes=[*variant.notes, *([] if doubt is None else [doubt]), *_of_policy(run, variant)],
    )


def _of_policy(run: RecordedRun, variant: Variant) -> list[str]:
    """What there is to say of another policy than the recorded one."""
    policy = variant.scheduler.policy
    doubt = None if policy == run.scheduler.policy else doubt_of_policy(policy, variant.workload)
    return [] if doubt is None else [f"{policy} has nothing to go by: {doubt}"]


def _ranges(
    run: RecordedRun, variant: Variant, report: Report, on_progress: OnProgress | None
) -> dict[str, tuple[float, float]]:
    """The least and the most of each figure, with step times as modelled and as far off as they may be."""
    if variant.extremes is None:
        return {}
    others = [_replayed(run, replace(variant, latency=each), on_progress).report for each in variant.extremes]
    values: dict[str, list[float]] = {}
    for each in (report, *others):
        for name, value, _ in _both(each, each):
            if value is not None:
                values.setdefault(name, []).append(value)
    return {name: (min(found), max(found)) for name, found in values.items()}


def _uncertainty(check: Check | None) -> float | None:
    return None if check is None or check.error is None else abs(check.error)


def _reasons(before: Report, after: Report) -> list[ReasonAnswer]:
    lost = {
        name: tuple(
            report.recorded_reasons[name].seconds if name in report.recorded_reasons else 0.0
            for report in (before, after)
        )
        for name in {**before.recorded_reasons, **after.recorded_reasons}
    }
    answers = [ReasonAnswer(reason=name, baseline_s=was, variant_s=now) for name, (was, now) in lost.items()]
    return sorted(answers, key=lambda each: (-max(each.baseline_s, each.variant_s), each.reason))[:_MOST_REASONS]
