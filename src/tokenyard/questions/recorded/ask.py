"""Asking: the recorded run is replayed as it was, held against the record, and replayed with other settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import Observers, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import SERVES_NONE, ConfigError
from tokenyard.explain.assumed_drafts import AssumedAcceptance, assumed_acceptance
from tokenyard.explain.compare.comparison import Figure, figures
from tokenyard.explain.population import FirstSent
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.classes import Classes, ClassFigures, classes_of
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import AfterWarmup
from tokenyard.explain.slo import SLO
from tokenyard.policies.named import policy_maker
from tokenyard.questions.by_class import grouped_by_class
from tokenyard.questions.recorded.answer import (
    FIGURES,
    OF_CLASSES,
    Check,
    ClassAnswer,
    FigureAnswer,
    GoodputAnswer,
    Mover,
    ReasonAnswer,
    SelfCheck,
    VariantAnswer,
    WhatIf,
    change_of,
)
from tokenyard.questions.recorded.decisions import drive, scheduling_steps
from tokenyard.questions.recorded.recorded_run import RecordedRun
from tokenyard.questions.recorded.variants import Variant, as_it_was, extremes_of
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim.replay import ReplayResult, replay
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.traffic import Progress
from tokenyard.steptime.carried import Reach
from tokenyard.steptime.model import MappedLatency, StepShape, StepWork
from tokenyard.trace.reader import TraceReader
from tokenyard.workload.load import doubt_of_policy

# ---------------------------------------------------------------------------------------------------------------------
# Who watches the replays of a what-if: when every request ended, and whether the steps are those of the trace.


class EndTimes(StepObserver):
    """Seconds from each user's arrival to the end of the answer, of those that got it."""

    reads_tokens = False

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._first = FirstSent()

    def request_finished(self, ts: float, request: Request) -> None:
        reason = FinishReason.of(request.status)
        is_left = reason is FinishReason.ABORT
        user, came = self._first.user(request.request_id, request.arrival_time, is_cancelled=is_left)
        if not is_left and reason is not FinishReason.ERROR:
            self.seconds[user] = ts - came


class StepComparison(StepObserver):
    """Counts leading steps that schedule what the trace's do; steps that schedule nothing are ignored.

    A step of the trace whose list of ids is cut short is compared by its number of tokens.
    """

    reads_tokens = False

    def __init__(self, reader: TraceReader) -> None:
        self._steps = scheduling_steps(reader)
        self.equal = 0
        """Steps before the first that differs."""
        self.parting: str | None = None

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        if self.parting is not None or not output.total_num_scheduled_tokens:
            return
        recorded = next(self._steps, None)
        if recorded is None:
            self.parting = "the replay goes on after the last step of the trace"
            return
        self.parting = recorded.difference(output.num_scheduled_tokens)
        self.equal += self.parting is None

    def finish(self) -> int:
        """The replay has ended; how many steps of the trace schedule anything."""
        rest = sum(1 for _ in self._steps)
        if rest and self.parting is None:
            self.parting = "the trace goes on after the last step of the replay"
            return self.equal + rest
        return self.equal + rest + (self.parting is not None)


# ---------------------------------------------------------------------------------------------------------------------
# How much of a replay lies in steps that are larger than any in the trace: they were not measured.

_MUCH = 0.05
"""A share of the time in steps: less is not worth a sentence."""


class StepWatch:
    """Keeps account of the time in steps that ``reach`` does not cover."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._most = Reach(0, 0, 0)
        self._seconds = self._beyond = 0.0

    def note(self, seconds: float, shape: StepShape) -> float:
        """A step takes so long; it still does."""
        work, most = StepWork.of(shape), self._most
        self._seconds += seconds
        if not self._reach.covers(work):
            self._beyond += seconds
            self._most = Reach(
                max(work.prefill_tokens, most.prefill_tokens),
                max(work.num_prefills, most.prefills),
                max(work.num_decodes, most.decodes),
            )
        return seconds

    def doubt(self, leans_on: str | None) -> str | None:
        """What to say of these steps; None if they took next to no time.

        ``leans_on`` is the deployment whose modelled times they have; None: the fit goes on beyond its steps.
        """
        share = self._beyond / self._seconds if self._seconds else 0.0
        if share < _MUCH:
            return None
        larger = [
            f"up to {asked:,} {what} in one, those fitted have at most {seen:,}"
            for what, asked, seen in self._reach.uncovered(self._most)
        ]
        source = "extrapolated from smaller ones" if leans_on is None else f"those of the model of {leans_on}, scaled"
        return (
            f"{share:.0%} of the time is spent in steps larger than those fitted ({'; '.join(larger)}): their"
            f" durations are {source}"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Asking: the recorded run is replayed as it was, and held against its trace; then with other settings.

OnProgress = Callable[[Progress], object]

TOLERANCE = 0.10
"""How far the means below may be off: further, and the answer rests on sand."""
_TOLERATED_MS = 1.0
"""A difference of a millisecond is too small to matter."""
_JUDGED = ("ttft_ms.mean", "tpot_ms.mean", "e2e_ms.mean")
_MOVED = 0.05
_MOST_MOVERS = 5
_MOST_REASONS = 8


class WhatIfOptions(NamedTuple):
    """What every replay is measured for."""

    by: str | None = None
    """Column of classes."""
    slos: tuple[SLO, ...] = ()
    """Bounds, those of a class with its name."""


NOTHING_MORE = WhatIfOptions()


class Baseline(msgspec.Struct, frozen=True):
    """The replay of what was."""

    report: Report
    ends: Mapping[str, float]
    """Request id -> seconds from arrival to end."""
    check: SelfCheck
    classes: Classes | None = None
    """Its requests class by class, if that was requested."""
    asked: WhatIfOptions = NOTHING_MORE
    extremes: tuple[Report, ...] = ()
    """The same with steps as short, and as long, as they may be, where the run is itself a prediction."""


class _Replayed(NamedTuple):
    report: Report
    ends: Mapping[str, float]
    result: ReplayResult
    doubt: str | None
    """Doubt about steps larger than the trace has."""
    classes: Classes | None


def replay_as_it_was(
    run: RecordedRun, on_progress: OnProgress | None = None, asked: WhatIfOptions = NOTHING_MORE
) -> Baseline:
    """Replay the run with its own settings, and say how far that repeats it."""
    alike = StepComparison(TraceReader(run.source, requests=False))
    report, ends, _, _, classes = _replayed(run, as_it_was(run), on_progress, alike, asked=asked)
    recorded_steps = alike.finish()
    checks = [Check.of(each) for each in _both(run.report, report)]
    failed = [check.name for check in checks if check.name in _JUDGED and not _is_close(check)]
    check = SelfCheck(
        checks=checks,
        equal_steps=alike.equal,
        recorded_steps=recorded_steps,
        parting=alike.parting,
        decisions=drive(run),
        failed=failed,
    )
    return Baseline(report, ends, check, classes, asked)


def with_extremes(run: RecordedRun, baseline: Baseline, on_progress: OnProgress | None = None) -> Baseline:
    """The same with what it is if all steps are as far off as a prediction's may be; nothing of a machine's run."""
    variant = as_it_was(run)
    if run.known is None:
        return baseline
    others = [replace(variant, latency=each) for each in extremes_of(run.latency, run.known)]
    return msgspec.structs.replace(
        baseline, extremes=tuple(_replayed(run, each, on_progress).report for each in others)
    )


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
        stalls=list(run.stalls),
        self_check=baseline.check,
        prediction=run.prediction(),
        variants=[_answered(run, baseline, variant, on_progress) for variant in variants],
    )


def _replayed(
    run: RecordedRun,
    variant: Variant,
    on_progress: OnProgress | None,
    *watchers: StepObserver,
    asked: WhatIfOptions = NOTHING_MORE,
) -> _Replayed:
    by, slos = asked
    builder, ends = ReportBuilder(() if by is not None else slos), EndTimes()
    recorder = TraceRecorder(None, AfterWarmup(builder, run.warmup) if run.warmup else builder)
    kept = RowsOfEngine.with_report(builder, recorder)
    watch = StepWatch(Reach.of(run.measured))
    result = replay(
        variant.workload,
        variant.scheduler,
        variant.cache,
        MappedLatency(variant.latency, watch.note),
        pace=run.speed(keeps_time=variant.keeps_time, rate=variant.rate),
        observer=Observers(recorder if by is None else kept.observer, ends, *watchers),
        policy=policy_maker(variant.scheduler.policy, "scheduling_policy")(),
        kv_transfer=variant.kv_transfer,
        speculation=variant.speculation,
        skip_refused=True,
        on_progress=on_progress,
    )
    rows = None if by is None else ReplayRows([kept], warmup=run.warmup)
    report, classes = builder.report(), None
    if rows is not None and by is not None:
        bounds = grouped_by_class(slos)
        classes = classes_of(rows.requests, rows.waits, by, slos=bounds, seconds=report.duration_s)
        report = msgspec.structs.replace(report, goodput=classes.goodput())
    return _Replayed(report, ends.seconds, result, watch.doubt(run.fit.terms_of or run.fit.leans_on), classes)


def _both(first: Report, second: Report) -> list[Figure]:
    """The figures that are answered, of two reports."""
    known = {figure.name: figure for figure in figures(first, second)}
    return [known[name] for name in FIGURES if name in known]


def _is_close(check: Check) -> bool:
    if check.recorded is None or check.replayed is None or check.error is None:
        return check.recorded is None
    return abs(check.error) <= TOLERANCE or abs(check.replayed - check.recorded) <= _TOLERATED_MS


def _answered(run: RecordedRun, baseline: Baseline, variant: Variant, on_progress: OnProgress | None) -> VariantAnswer:
    report, ends, result, doubt, classes = _replayed(run, variant, on_progress, asked=baseline.asked)
    refused = len(result.refused) + result.num_left_out
    if refused == len(variant.workload):
        fix = f"serves none of the requests: {result.refused[0].problem}"
        raise ConfigError("set", variant.name, fix, code=SERVES_NONE)
    recorded = {check.name: check for check in baseline.check.checks}
    is_measured = variant.extremes is None and not run.is_prediction
    both = baseline.extremes if variant.extremes is None else ()
    if variant.extremes is None and run.known is not None:
        variant = replace(variant, extremes=extremes_of(variant.latency, run.known))
    others = [_replayed(run, replace(variant, latency=each), on_progress).report for each in variant.extremes or ()]
    ranges, changes = _ranges(report, others), _changes(baseline.report, report, both, others)
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
                uncertainty=_uncertainty(recorded.get(name)) if is_measured else None,
                change=None if refused else change_of(before, after),
                low=ranges[name][0] if name in ranges else None,
                high=ranges[name][1] if name in ranges else None,
                change_low=changes[name][0] if name in changes and not refused else None,
                change_high=changes[name][1] if name in changes and not refused else None,
                censored=censored,
            ).judged()
            for name, before, after, _, censored in map(astuple, _both(baseline.report, report))
        ],
        faster=len(faster),
        slower=len(slower),
        winners=faster[:_MOST_MOVERS],
        losers=slower[:_MOST_MOVERS],
        reasons=_reasons(baseline.report, report),
        refused=refused,
        serve_flags=list(variant.flags) if variant.is_vllms and not refused else [],
        notes=[*variant.notes, *([] if doubt is None else [doubt]), *_of_policy(run, variant)],
        drafts=_drafts(run, variant, report),
        by=baseline.asked.by,
        classes=_classes(baseline.classes, classes),
        goodput=_goodput(baseline.report, report),
    )


def _drafts(run: RecordedRun, variant: Variant, report: Report) -> AssumedAcceptance | None:
    """What TPOT rests on: of a recorded replay, too, whose drafts were right as often as was assumed there."""
    assumed = variant.drafts
    if assumed is None and variant.speculation is not None and variant.speculation is run.speculation:
        assumed = assumed_acceptance(run.start, len(run.speculation.rates), None)
    return None if assumed is None else assumed.beside(report.tpot_ms.mean)


def _goodput(before: Report, after: Report) -> GoodputAnswer | None:
    if before.goodput is None or after.goodput is None:
        return None
    return GoodputAnswer(baseline=before.goodput, variant=after.goodput)


def _classes(before: Classes | None, after: Classes | None) -> list[ClassAnswer]:
    """Classes of both replays, by name."""
    if before is None or after is None:
        return []
    then = {each.name: each for each in after.classes}
    return [
        ClassAnswer(
            name=each.name,
            requests=each.requests,
            baseline=_latencies(each),
            variant=_latencies(then[each.name]),
            baseline_good=_share_of(each),
            variant_good=_share_of(then[each.name]),
        )
        for each in sorted(before.classes, key=attrgetter("name"))
        if each.name in then
    ]


def _share_of(figures: ClassFigures) -> float | None:
    return None if figures.goodput is None else figures.goodput.share


def _latencies(figures: ClassFigures) -> dict[str, float | None]:
    return {name: attrgetter(name)(figures) for name in OF_CLASSES}


def _of_policy(run: RecordedRun, variant: Variant) -> list[str]:
    """What there is to say of another policy than the recorded one."""
    policy = variant.scheduler.policy
    doubt = None if policy == run.scheduler.policy else doubt_of_policy(policy, variant.workload)
    return [] if doubt is None else [f"{policy} has nothing to decide by: {doubt}"]


_Ranges = dict[str, tuple[float, float]]
"""Figure -> the least and the most of it."""


def _ranges(report: Report, others: Sequence[Report]) -> _Ranges:
    """The range of each figure, with step times as modelled and as far off as they may be; empty without ``others``."""
    if not others:
        return {}
    return _least_and_most([(each.name, each.a) for one in (report, *others) for each in _both(one, one)])


def _changes(before: Report, after: Report, befores: Sequence[Report], afters: Sequence[Report]) -> _Ranges:
    """The range of each change, where steps of both replays are as far off; empty where one is not modelled."""
    if len(befores) != len(afters) or not befores:
        return {}
    pairs = ((before, after), *zip(befores, afters, strict=True))
    return _least_and_most(
        [(each.name, change_of(each.a, each.b)) for one, other in pairs for each in _both(one, other)]
    )


def _least_and_most(values: Sequence[tuple[str, float | None]]) -> _Ranges:
    found: dict[str, list[float]] = {}
    for name, value in values:
        if value is not None:
            found.setdefault(name, []).append(value)
    return {name: (min(each), max(each)) for name, each in found.items()}


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
