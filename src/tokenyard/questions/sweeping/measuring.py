"""One variant in, one row out: a replay of it, ended early where its end is certain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from hashlib import blake2s
from math import floor, inf, isfinite
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.explain.assumed_drafts import AssumedAcceptance
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.classes import classes_of
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import OF_NO_REQUEST, SLO, Goodput, Objective
from tokenyard.explain.steady import Load, LoadState
from tokenyard.policies.named import PolicyMaker
from tokenyard.questions.by_class import classes_in, column_called, grouped_by_class
from tokenyard.questions.sweeping.rows import (
    FIGURES,
    Agreement,
    Halves,
    Row,
    Setting,
    Settings,
    figures_of,
    has_pace,
    key_of,
    settings_in_words,
)
from tokenyard.quick_dataclass import dataclass
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.replay import ReplayResult, replay_engines
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.settings import DecodeSide, ReplaySettings
from tokenyard.sim.traffic import STOP, OnProgress, Progress
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.schema import TraceStart
from tokenyard.vocabulary import is_in_flight
from tokenyard.workload.load import turn_orders
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# Ending a replay early: what is certain of its end before it is there.
#
# A bound on a percentile is missed for certain once so many requests are beyond it that the percentile of all must
# be, whatever the rest do. Requests under way count as soon as they are beyond it already. Nothing here is an
# estimate.

_PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


class EarlyStop(msgspec.Struct, frozen=True):
    """How a replay ends for certain, before it has."""

    why: str
    met: bool | None = None
    at_least: float | None = None
    """More than so many times its bound is what the figure of ``bound`` would be at the end."""
    bound: str | None = None


class Incumbent(msgspec.Struct, frozen=True):
    """A variant that has been replayed to its end within the bounds."""

    figure: str
    """``goodput`` in requests per second, ``throughput`` in output tokens per second, ``cost`` of an hour, ``gpus``."""
    value: float
    cost: float | None
    gpus: int | None

    def costs_no_more_than(self, cost: float | None, gpus: int | None) -> bool:
        """Whether it is as cheap as a variant of this cost and number of GPUs."""
        if self.cost is not None and cost is not None:
            return self.cost <= cost
        return self.gpus == gpus or (self.gpus is not None and gpus is not None and self.gpus <= gpus)

    def rules_out(self, cost: float | None, gpus: int | None) -> EarlyStop | None:
        """Why a variant need not be replayed at all: it costs more. None: it may cost less."""
        own = {"cost": cost, "gpus": gpus}.get(self.figure)
        if own is None or own <= self.value:
            return None
        return EarlyStop("costs more than one that is within every bound: not replayed")

    def beats(self, most: Mapping[str, float]) -> EarlyStop | None:
        """Why a replay need not go on whose figures can become at most these; None: it may still be better."""
        if most.get(self.figure, inf) >= self.value:
            return None
        return EarlyStop(f"cannot reach the best {self.figure} so far, {self.value:,.2f}, any more")


class SLOWatch(StepObserver):
    """Counts requests that are beyond the bounds, on one engine or several."""

    reads_tokens = False

    def __init__(self, slos: Sequence[SLO], workload: Workload, *, by: str | None = None, slack: float = 1.0) -> None:
        """``by``: the column that bounds of a class go by. ``slack``: bounds are missed only beyond so many times their
        value; infinity: none ever is.
        """
        countable = [slo for slo in slos if slo.statistic in (None, *_PERCENTS) and slo.figure not in OF_NO_REQUEST]
        self._slack = slack
        self._slos = countable if workload.clients is None else []
        """None where requests are sent again: what becomes of an attempt is not yet what becomes of its user."""
        self._class_of = {} if by is None else classes_in(workload, by)
        self._num_requests = len(workload)
        self._num_of = {"": len(workload), **Counter(self._class_of.values())}
        """Class -> its requests; the empty name: all of them."""
        self._num_tokens = workload.num_output_tokens
        self._all_end = workload.first_impatient is None
        """No client goes away: who has come will end whole."""
        self._most_tokens = {request.request_id: request.max_tokens for request in workload}
        self._live: dict[str, Request] = {}
        self._began = inf
        """When a scheduler got the first request: rates count from there."""
        self._beyond = dict.fromkeys(self._slos, 0)
        """Requests that have ended beyond each bound."""
        self._bad = 0
        """Requests that have ended beyond any bound."""
        self.decided: EarlyStop | None = None
        """What is certain, since :meth:`decide` has seen it."""
        self.most: dict[str, float] = {}
        """Figure of an incumbent -> what it can become at most, when :meth:`decide` last asked."""

    def request_arrived(self, ts: float, request: Request) -> None:
        self._began = min(self._began, ts)
        self._live[request.request_id] = request

    def request_refused(self, ts: float, request: Request) -> None:
        own = self._class_of.get(request.request_id, "")
        for slo in self._slos if self._slack < inf else ():
            self._beyond[slo] += slo.of in ("", own)
        self._bad += 1

    def request_finished(self, ts: float, request: Request) -> None:
        self._live.pop(request.request_id, None)
        if request.status is RequestStatus.FINISHED_MOVED:
            return
        if request.status is RequestStatus.FINISHED_REJECTED:
            self.request_refused(ts, request)
            return
        is_whole = FinishReason.of(request.status) not in (FinishReason.ABORT, FinishReason.ERROR)
        beyond = self._beyond_by(request, ts) if is_whole else []
        for slo in beyond:
            self._beyond[slo] += 1
        self._bad += bool(beyond)

    def decide(self, now: float, incumbents: Iterable[Incumbent] = ()) -> EarlyStop | None:
        """Whether a bound is missed for certain by now, or one of ``incumbents`` cannot be reached."""
        self.decided = self.decided or self._decided(now, incumbents)
        return self.decided

    def _decided(self, now: float, incumbents: Iterable[Incumbent]) -> EarlyStop | None:
        beyond, bad = dict(self._beyond), self._bad
        for request in self._live.values() if self._all_end else ():
            late = self._beyond_by(request, now)
            for slo in late:
                beyond[slo] += 1
            bad += bool(late)
        for slo, number in beyond.items():
            allowed = self._allowed(slo)
            if number > allowed:
                times = "" if self._slack == 1 else f" by more than {self._slack:.4g} times"
                why = f"{slo} is missed{times} for certain after {now:.0f} s: {number:,} requests are beyond it"
                return EarlyStop(why, met=False, at_least=self._slack, bound=slo.name)
        if (ran := now - self._began) > 0:
            self.most = {"goodput": (self._num_requests - bad) / ran, "throughput": self._num_tokens / ran}
        return next((stop for each in incumbents if (stop := each.beats(self.most)) is not None), None)

    def _beyond_by(self, request: Request, now: float) -> list[SLO]:
        """Bounds that a request is beyond by now."""
        own = self._class_of.get(request.request_id, "")
        return [
            slo
            for slo in self._slos
            if slo.of in ("", own) and self._at_least(request, slo, now) > slo.bound_ms * self._slack
        ]

    def _allowed(self, slo: SLO) -> float:
        """Requests that may be beyond a bound while it can still hold."""
        if slo.statistic is None:
            return inf
        requests = self._num_of[slo.of]
        return requests - floor(_PERCENTS[slo.statistic] / 100 * (requests - 1)) - 1

    def _at_least(self, request: Request, slo: SLO, now: float) -> float:
        """Milliseconds that a request's latency has already, or had at its end."""
        times = request.times
        if slo.figure == "tpot":
            further = self._most_tokens.get(request.request_id, 0) - 1
            if times.first_token is None or further < 1:
                return 0.0
            return 1e3 * ((times.finished or now) - times.first_token) / further
        moment = {"ttft": times.first_token, "queue": times.first_scheduled, "e2e": times.finished}[slo.figure]
        return 1e3 * ((now if moment is None else moment) - request.arrival_time)


# ---------------------------------------------------------------------------------------------------------------------
# One replay of a variant, on one engine, on several, or with prefill and decode apart, and what came of it.


class EngineRecord(msgspec.Struct, frozen=True):
    """How the trace of one engine is written."""

    config: TraceConfig
    """Its path is relative to the folder of the variant."""
    start: TraceStart


class PreparedVariant(msgspec.Struct, frozen=True):
    """A variant that can be replayed."""

    workload: Workload
    replays: ReplaySettings
    """Settings of the replay; of a split, those of its prefill engines."""
    policy: PolicyMaker
    gpu: str | None
    gpus: int | None
    """How many GPUs all engines have; None if it is not known, or changes."""
    gpus_per_replica: int | None = None
    """GPUs of one of several replicas that come and go."""
    decode: DecodeSide | None = None
    """The decode side of a split; None: every engine does both."""
    records: tuple[EngineRecord, ...] = ()
    """A record of each engine, those that prefill before those that decode; empty where no trace can be written."""
    drafts: AssumedAcceptance | None = None
    """What TPOT rests on, where the acceptance of drafts is not given."""
    taken: Mapping[str, Setting] = {}
    """Settings that were not given, and are not vLLM's own, since it would not start with those."""


class HeldBy(msgspec.Struct, frozen=True):
    """What most waiting time was lost to."""

    reason: str
    seconds: float
    """Request-seconds."""
    side: str | None = None
    """``prefill`` or ``decode``, of a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """What a replay came to."""

    report: Report
    """The report; of a split, that of its decode engines, whose latencies are those that clients see."""
    refused: int
    """Requests that were not served."""
    seconds: float | None
    """From the first step of any engine to the last moment."""
    held: HeldBy | None
    """None: no request was held back."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """What a split has besides: how busy its sides are."""
    traces: tuple[Path, ...] = ()
    """Each engine's steps file, those that decode first; empty unless all were requested and are whole."""


def replayed(
    variant: PreparedVariant,
    slos: Sequence[SLO],
    watch: StepObserver | None = None,
    on_progress: OnProgress | None = None,
    *,
    traces: Path | None = None,
    by: str | None = None,
) -> ReplayOutcome:
    """Replay a variant; ``watch`` sees what clients wait for: the decode engines of a split, else all engines.

    ``traces``: a folder that gets its traces, as far as they can be written. ``by``: a column of classes; each of
    ``slos`` is then of one. If ``on_progress`` ends the replay, the
    outcome is that of the part that was replayed. Raises TokenyardError where it cannot be replayed.
    """
    decode = variant.decode
    prefills = 0 if decode is None else variant.replays.fleet.num_engines
    others = variant.replays.fleet.num_engines if decode is None else decode.engines.fleet.num_engines
    builders = [ReportBuilder(() if by else slos) for _ in range(prefills + others)]
    with ExitStack() as stack:
        engines = _Engines(variant, traces, stack)
        recorders: Sequence[StepObserver] = engines.recorders(builders)
        kept = [RowsOfEngine.with_report(*each) for each in zip(builders, recorders, strict=True)] if by else []
        recorders = [each.observer for each in kept] or recorders
        watchers = _watched(recorders[prefills:], watch)
        result = replay_engines(
            variant.workload,
            variant.replays,
            decode=decode,
            observers=[*recorders[:prefills], *watchers],
            policy=variant.policy,
            on_progress=on_progress,
        )
        report = _report(builders[prefills:]).with_clients(result.clients)
        report = msgspec.structs.replace(report, replicas=result.replicas)
        shares: dict[str, float | None] = {}
        if by is not None:
            rows, bounds = ReplayRows(kept, leave_out=prefills), grouped_by_class(slos)
            column = column_called(by, rows.requests)
            classes = classes_of(rows.requests, rows.waits, column, slos=bounds, seconds=report.duration_s)
            report = msgspec.structs.replace(report, goodput=classes.goodput())
            shares = {f"{each.name}:goodput.share": each.goodput.share for each in classes.classes if each.goodput}
        if decode is None:
            seconds, held = report.duration_s, _held(report)
        else:
            seconds = _report(builders).duration_s
            held = [*_held(_report(builders[:prefills]), "prefill"), *_held(report, "decode")]
    return ReplayOutcome(
        report=report,
        refused=len(result.refused) + result.num_left_out,
        seconds=seconds,
        held=_most(held),
        figures={**({} if decode is None else dict(_busy(result))), **shares},
        traces=engines.written(),
    )


class _Engines:
    """The traces of a variant's engines."""

    def __init__(self, variant: PreparedVariant, folder: Path | None, stack: ExitStack) -> None:
        self._variant = variant
        self._turns = turn_orders(variant.workload) if folder is not None else None
        self._writers = [_writer(each, folder, stack) for each in variant.records] if folder is not None else []

    def recorders(self, builders: Sequence[ReportBuilder]) -> list[TraceRecorder]:
        """For each engine."""
        if not self._writers:
            return [TraceRecorder(None, builder) for builder in builders]
        chosen = zip(self._writers, self._variant.records, builders, strict=True)
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


def _watched(recorders: Sequence[StepObserver], watch: StepObserver | None) -> Sequence[StepObserver]:
    return recorders if watch is None else [Observers(each, watch) for each in recorders]


def _report(builders: Sequence[ReportBuilder]) -> Report:
    """The report of all engines that the builders watched."""
    whole = builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)
    return whole.report()


def _busy(result: ReplayResult) -> Iterator[tuple[str, float]]:
    """Shares of the run, each of one engine on average, as ``tokenyard split`` has them."""
    seconds = result.seconds or 1.0
    yield "split.prefill", result.prefill.busy_seconds / seconds
    yield "split.decode", result.decode.busy_seconds / seconds
    yield "split.link", result.link_busy_seconds / seconds


def _held(report: Report, side: str | None = None) -> list[HeldBy]:
    return [
        HeldBy(name, reason.seconds, side) for name, reason in report.recorded_reasons.items() if not is_in_flight(name)
    ]


def _most(held: Sequence[HeldBy]) -> HeldBy | None:
    """None if none lost any time."""
    found = max(held, key=lambda each: each.seconds, default=None)
    return found if found is not None and found.seconds > 0 else None


# ---------------------------------------------------------------------------------------------------------------------
# The worker of ``plan`` and ``sweep``: one variant in, one row out, in this process or in another.

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_=+.-]+")
_LONGEST_NAME = 80


class VariantSource(Protocol):
    """What variants are made of: a workload and a deployment, or a recorded run. It can be pickled."""

    def prepared(self, settings: Settings) -> PreparedVariant:
        """The variant. Raises TokenyardError where vLLM would not start with it, or it cannot be asked about."""


@dataclass(frozen=True, kw_only=True)
class VariantWorker:
    """Measures variants of one source. It can be pickled, and called in any process."""

    source: VariantSource
    slos: tuple[SLO, ...] = ()
    by: str | None = None
    """Column of classes; each bound is then of one."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """GPU -> price of an hour."""
    asks_halves: bool = False
    """A state is steady only where both halves of a replay agree."""
    traces: Path | None = None
    """A folder in which every variant that is replayed leaves its traces, in one of its own; None: nowhere."""

    def __call__(self, settings: Settings, **how: Any) -> Row:
        """Return the row of a variant, which :meth:`measured` replays as it is told."""
        return self.measured(settings, **how).row

    def measured(
        self,
        settings: Settings,
        *,
        load: float = 1.0,
        stops: bool = False,
        slack: float = 1.0,
        incumbents: Sequence[Incumbent] = (),
        one_at_a_time: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Measured:
        """Replay one variant, its requests arriving ``load`` times as fast, or ``one_at_a_time``.

        With ``stops`` the replay ends as soon as it is certain that a bound is missed (by more than ``slack`` times its
        value), or that it cannot beat one of ``incumbents`` at the same cost or less. Return the row, and what to know
        to judge it by other incumbents.
        """
        try:
            variant = self.source.prepared(settings)
            workload = variant.workload.with_rate(load)
            if one_at_a_time:
                workload = workload.with_max_concurrency(1)
        except TokenyardError as error:
            return Measured(Row(settings=dict(settings), load=load, problem=str(error), replays=0))
        variant = msgspec.structs.replace(variant, workload=workload)
        watch = SLOWatch(self.slos, workload, by=self.by, slack=slack) if stops else None
        price = None if variant.gpu is None else self.prices.get(variant.gpu)
        cost = None if price is None or variant.gpus is None else price * variant.gpus
        unmeasured = Row(
            settings=dict(settings),
            load=load,
            requests=len(variant.workload),
            gpu=variant.gpu,
            gpus=variant.gpus,
            cost_per_hour=cost,
            taken=dict(variant.taken),
        )
        measured = Measured(unmeasured, unmeasured)
        if (ruled_out := measured.judged(incumbents)) is not measured.row:
            return msgspec.structs.replace(measured, row=ruled_out)
        beaten = [incumbent for incumbent in incumbents if incumbent.costs_no_more_than(cost, variant.gpus)]
        folder = None if self.traces is None else self.traces / folder_of(settings)
        try:
            listener = _listener(watch, beaten, on_progress)
            halves = Halves(self.slos, variant.workload, self.by) if self.asks_halves else None
            outcome = replayed(variant, self.slos, _both(watch, halves), listener, traces=folder, by=self.by)
        except TokenyardError as error:
            row = Row(settings=dict(settings), load=load, problem=str(error))
            return msgspec.structs.replace(measured, row=row, most={} if watch is None else watch.most)
        if watch is not None and watch.decided is not None:
            return msgspec.structs.replace(measured, row=_stopped(unmeasured, watch.decided), most=watch.most)
        gpus = variant.gpus
        replicas = outcome.report.replicas
        if gpus is None and replicas is not None and variant.gpus_per_replica is not None:
            gpus = replicas.max_held * variant.gpus_per_replica
            cost = None if price is None else price * replicas.mean_held * variant.gpus_per_replica
        row = _row(settings, load, msgspec.structs.replace(variant, gpus=gpus), outcome, cost, len(variant.workload))
        row = with_state(row, outcome.report.load, variant.workload, halves)
        if self.traces is not None:
            traces = [each.relative_to(self.traces).as_posix() for each in outcome.traces]
            row = msgspec.structs.replace(row, traces=traces)
        return msgspec.structs.replace(measured, row=row, most={} if watch is None else watch.most)


def _both(watch: SLOWatch | None, halves: Halves | None) -> StepObserver | None:
    return watch if halves is None else halves if watch is None else Observers(watch, halves)


def with_state(row: Row, load: Load | None, workload: Workload, halves: Halves | None) -> Row:
    """The row with what it says of the load."""
    if load is None or load.state is None or not has_pace(workload):
        return row
    state = load.state
    agreement = Agreement.WHOLE if halves is None or state is not LoadState.STEADY else halves.agreement()
    if agreement is not Agreement.WHOLE:
        state = LoadState.SHORT
    met = False if state is LoadState.OVERLOADED and row.met else row.met
    nearly = agreement is Agreement.NEARLY
    told = {"answers_long": load.answers_long, "variation": None if halves is None else halves.variation()}
    return msgspec.structs.replace(row, state=state, nearly_steady=nearly, met=met, **told)


class Measured(msgspec.Struct, frozen=True):
    """A row, and what tells how it would look if other variants had been replayed before."""

    row: Row
    unmeasured: Row | None = None
    """The variant before its replay; None: it cannot be replayed."""
    most: Mapping[str, float] = {}
    """What figures of incumbents could have become at most, the last time that the replay went on."""

    def judged(self, incumbents: Sequence[Incumbent]) -> Row:
        """The row with ``incumbents`` known before the replay, whose own end was not due to others."""
        before = self.unmeasured
        if before is None:
            return self.row
        cost, gpus = before.cost_per_hour, before.gpus
        for incumbent in incumbents:
            if (ruled_out := incumbent.rules_out(cost, gpus)) is not None:
                return msgspec.structs.replace(_stopped(before, ruled_out), requests=0, replays=0)
        for incumbent in incumbents:
            beaten = incumbent.beats(self.most) if incumbent.costs_no_more_than(cost, gpus) else None
            if beaten is not None:
                return _stopped(before, beaten)
        return self.row


def _stopped(unmeasured: Row, decided: EarlyStop) -> Row:
    """The row of a variant whose replay was ended."""
    return msgspec.structs.replace(
        unmeasured,
        stopped=decided.why,
        met=decided.met,
        tightness_above=decided.at_least,
        tightest=decided.bound,
    )


def folder_of(settings: Settings) -> str:
    """A name for the traces of a variant, which people can read: the same for the same settings, in whatever order."""
    words = settings_in_words(dict(sorted(settings.items())))
    digest = blake2s(key_of(settings).encode(), digest_size=3).hexdigest()
    return f"{_NOT_IN_NAMES.sub('_', words)[:_LONGEST_NAME]}-{digest}"


def _listener(
    watch: SLOWatch | None, incumbents: Sequence[Incumbent], on_progress: OnProgress | None
) -> OnProgress | None:
    """Ends the replay once its end is certain."""
    if watch is None:
        return on_progress

    def listen(progress: Progress) -> object:
        if on_progress is not None:
            on_progress(progress)
        return None if watch.decide(progress.now, incumbents) is None else STOP

    return listen


def _of_classes(goodput: Goodput | None) -> Iterator[tuple[str, float | None]]:
    """Figures that bounds of classes are on, and their values."""
    for each in () if goodput is None else goodput.objectives:
        if each.figure is not None and ":" in each.name:
            yield each.figure, each.value_ms


def _tightness(objective: Objective) -> float:
    """The figure in times its bound; infinite where its rank falls among requests that were refused."""
    if objective.value_ms is None:
        return -inf if objective.met is None else inf
    is_never = objective.met is False and objective.value_ms <= objective.bound_ms
    return inf if is_never else objective.value_ms / objective.bound_ms


def _row(
    settings: Settings, load: float, variant: PreparedVariant, outcome: ReplayOutcome, cost: float | None, requests: int
) -> Row:
    report, held = outcome.report, outcome.held
    tokens, seconds = report.output_tokens, outcome.seconds
    goodput = report.goodput
    objectives = [] if goodput is None else goodput.objectives
    tightness, tightest = max(((_tightness(each), each.name) for each in objectives), default=(-inf, None))
    people = report.outcomes
    return Row(
        settings=dict(settings),
        load=load,
        requests=requests,
        refused=outcome.refused,
        cancelled=0 if people is None else people.cancelled,
        unfinished=0 if people is None else people.unfinished,
        censored=[name for name in report.censored if name in FIGURES],
        is_open=any(each.is_open for each in objectives),
        open_for={each.name: each.open_for for each in objectives if each.open_for is not None},
        met=None if goodput is None else goodput.met,
        tightness=tightness if isfinite(tightness) else None,
        tightest=None if tightness == -inf else tightest,
        figures={**figures_of(report), **outcome.figures, **dict(_of_classes(goodput))},
        held_by=None if held is None else held.reason,
        held_s=0.0 if held is None else held.seconds,
        held_at=None if held is None else held.side,
        gpu=variant.gpu,
        gpus=variant.gpus,
        drafts=None if variant.drafts is None else variant.drafts.beside(report.tpot_ms.mean),
        cost_per_hour=cost,
        taken=dict(variant.taken),
        cost_per_million_tokens=cost * seconds / 3600 / tokens * 1e6
        if cost is not None and tokens and seconds
        else None,
    )
