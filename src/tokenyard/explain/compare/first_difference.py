"""Where two traces part: laid beside each other step by step until a decision differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, zip_longest
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tokenyard.explain.classifier import classify
from tokenyard.explain.report.report import Header
from tokenyard.explain.why.timeline import timeline_readers
from tokenyard.trace.facts import StepFacts
from tokenyard.trace.held_back import NOT_RECORDED, HeldBack, main_reason
from tokenyard.trace.reader import RankTrace, TraceReader, find_ranks
from tokenyard.trace.schema import AdmissionOutcome, KVNumbers, StepDecision, StepSnapshot
from tokenyard.trace.steps import Step, facts_of
from tokenyard.vocabulary import Place

# ---------------------------------------------------------------------------------------------------------------------
# Two traces laid beside each other: at the same steps, at the same times since their starts, or job by job.

Alignment = Literal["step", "time", "job"]
_ROWS = 12
"""Moments shown of each trace."""
_FEWEST_ROWS = 3
"""Moments of each engine that are shown at least."""
_JOBS = 100
"""Jobs listed: those that differ most."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A trace at one step."""

    step: int
    seconds: float | None
    """Since its first step."""
    num_running: int | None
    num_waiting: int | None
    free_blocks: int | None
    tokens: int | None
    reason: str | None
    """Recorded main reason, else the classifier's bucket."""


class MomentPair(msgspec.Struct, frozen=True, kw_only=True):
    """Both traces at the same place; None where a trace has ended."""

    at: float
    """Step number, or seconds since the start."""
    a: Moment | None
    b: Moment | None
    rank: int | None = None
    """The engine, where there are several."""


class JobSpan(msgspec.Struct, kw_only=True):
    """A job in one of the traces, in microseconds since the trace's first arrival."""

    begin_us: int
    end_us: int
    waited_us: int = 0
    requests: int = 0


class JobPair(msgspec.Struct, frozen=True, kw_only=True):
    """A job in both traces; None where it does not occur."""

    job_id: str
    a: JobSpan | None
    b: JobSpan | None

    @property
    def change_us(self) -> float:
        """How much longer it took in B; infinite if only one has it."""
        if self.a is None or self.b is None:
            return float("inf")
        return (self.b.end_us - self.b.begin_us) - (self.a.end_us - self.a.begin_us)


def align_moments(
    a: Path | str, b: Path | str, headers: tuple[Header, Header], align: Literal["step", "time"]
) -> list[MomentPair]:
    """Both traces at a dozen places, evenly spread over the longer one; of several engines, each at a few."""
    in_a, in_b = ({each.rank: each for each in find_ranks(path)} for path in (a, b))
    ranks = list(in_a | in_b)
    places = _places(headers, align, max(_ROWS // len(ranks), _FEWEST_ROWS))
    return [
        MomentPair(at=place, a=left, b=right, rank=rank)
        for rank in ranks
        for place, left, right in zip(
            places, _moments(in_a.get(rank), places, align), _moments(in_b.get(rank), places, align), strict=True
        )
        if left is not None or right is not None
    ]


def _places(headers: tuple[Header, Header], align: Literal["step", "time"], rows: int) -> list[float]:
    if align == "time":
        longest = max(header.seconds or 0.0 for header in headers)
        return [longest * i / (rows - 1) for i in range(rows)]
    first = min(header.first_step or 0 for header in headers)
    last = max(header.last_step or 0 for header in headers)
    return sorted({float(first + (last - first) * i // (rows - 1)) for i in range(rows)})


def _moments(trace: RankTrace | None, places: list[float], align: Literal["step", "time"]) -> list[Moment | None]:
    """For each place the first step there or after it; None for places after the end."""
    found: list[Moment | None] = []
    if trace is None or trace.is_idle:
        return [None] * len(places)
    start = trace.run_start
    for step in TraceReader(trace.files, requests=False).steps():
        start = step.ts if start is None else start
        seconds = step.ts - start if step.ts is not None and start is not None else None
        here = step.number if align == "step" else seconds
        while here is not None and len(found) < len(places) and here >= places[len(found)]:
            found.append(_moment(step, seconds))
        if len(found) == len(places):
            break
    return found + [None] * (len(places) - len(found))


def _moment(step: Step, seconds: float | None) -> Moment:
    facts = facts_of(step)
    reason = main_reason(step.outcome) if step.outcome is not None else None
    return Moment(
        step=step.number,
        seconds=seconds,
        num_running=facts.num_running,
        num_waiting=facts.num_waiting,
        free_blocks=facts.free_blocks,
        tokens=facts.token_sum,
        reason=reason or classify(facts).bucket.value,
    )


def align_jobs(a: Path | str, b: Path | str) -> list[JobPair]:
    """Jobs (requests of no job count as one each) of both traces, those that differ most first."""
    in_a, in_b = dict(_jobs(a)), dict(_jobs(b))
    pairs = [JobPair(job_id=job, a=in_a.get(job), b=in_b.get(job)) for job in in_a | in_b]
    return sorted(pairs, key=lambda pair: (-abs(pair.change_us), pair.job_id))[:_JOBS]


def _jobs(path: Path | str) -> Iterator[tuple[str, JobSpan]]:
    spans: dict[str, JobSpan] = {}
    for timeline in chain.from_iterable(reader.timelines() for _, reader in timeline_readers(path)):
        begin = timeline.arrived_us or 0
        span = spans.setdefault(
            timeline.job_id or timeline.request_id, JobSpan(begin_us=begin, end_us=timeline.until_us)
        )
        span.begin_us, span.end_us = min(span.begin_us, begin), max(span.end_us, timeline.until_us)
        span.waited_us += timeline.waited_us
        span.requests += 1
    start = min((span.begin_us for span in spans.values()), default=0)
    for job, span in spans.items():
        span.begin_us -= start
        span.end_us -= start
        yield job, span


# ---------------------------------------------------------------------------------------------------------------------
# What one of two traces decided in a step, and what became of one request there.


class DecidedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the traces did in a step. None where it does not record it."""

    step: int
    ts: float | None
    seconds: float | None
    """Since the first step of the run."""
    num_running: int | None
    max_num_running: int | None
    """Most requests that may run at once."""
    num_waiting: int | None
    free_blocks: int | None
    total_blocks: int | None
    tokens: int | None
    """Scheduled in the step."""
    token_budget: int | None
    """Most tokens of a step."""
    decision: StepDecision | None
    outcome: AdmissionOutcome | None


def decided_step(step: Step | None, run_start: float | None) -> DecidedStep | None:
    """The numbers of a step of a run whose first step began at ``run_start``; None for None."""
    if step is None:
        return None
    facts = facts_of(step)
    return DecidedStep(
        step=step.number,
        ts=step.ts,
        seconds=step.ts - run_start if step.ts is not None and run_start is not None else None,
        num_running=facts.num_running,
        max_num_running=facts.max_running,
        num_waiting=facts.num_waiting,
        free_blocks=facts.free_blocks,
        total_blocks=facts.total_blocks,
        tokens=facts.token_sum,
        token_budget=facts.token_budget,
        decision=step.decision,
        outcome=step.outcome,
    )


class FateKind(StrEnum):
    """What a step of one trace did with a request."""

    ADMITTED = "admitted"
    RESUMED = "resumed"
    PREEMPTED = "preempted"
    SCHEDULED = "scheduled"
    """The request ran already and got tokens."""
    STALLED = "stalled"
    """The request ran already and got no tokens."""
    WAITING = "waiting"
    NOT_ARRIVED = "not_arrived"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The trace does not list it, and leaves ids out."""


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request in a step of one trace."""

    kind: FateKind
    tokens: int | None = None
    """Tokens that the request got."""
    reason: str | None = None
    """Why the request got no tokens, if the trace records it."""
    place: Place | None = None
    """How the reason met it."""
    position: int | None = None
    """Its position in the queue, from 1; None where it does not wait."""
    kv: KVNumbers | None = None
    """Blocks that were refused to it."""


_LISTS = (
    ("scheduled_new_req_ids", FateKind.ADMITTED),
    ("scheduled_resumed_req_ids", FateKind.RESUMED),
    ("preempted_req_ids", FateKind.PREEMPTED),
)


def fate_of(request_id: str, step: Step) -> Fate | None:
    """What ``step`` did with a request; None if it is in none of its lists."""
    decision, snapshot = step.decision or StepDecision(step=-1), step.snapshot or StepSnapshot(step=-1)
    tokens = (decision.num_scheduled_tokens or {}).get(request_id)
    held = HeldBack.of(step.outcome) if step.outcome is not None else HeldBack()
    held.preempt(decision.preempted_req_ids or (), step.outcome)
    for field, kind in _LISTS:
        if request_id in (getattr(decision, field) or ()):
            preempted = kind is FateKind.PREEMPTED
            cause = held.named[request_id] if preempted else NOT_RECORDED
            return Fate(kind=kind, tokens=tokens, reason=cause.reason if preempted else None)
    if tokens or request_id in (decision.scheduled_running_req_ids or ()):
        return Fate(kind=FateKind.SCHEDULED, tokens=tokens)
    if request_id in (snapshot.running_req_ids or ()):
        stalled = held.stalled.get(request_id)
        return Fate(kind=FateKind.STALLED, reason=stalled.reason if stalled is not None else None)
    waiting = snapshot.waiting_req_ids or []
    if request_id not in waiting:
        return None
    cause = held.cause_of(request_id)
    return Fate(
        kind=FateKind.WAITING,
        reason=None if cause == NOT_RECORDED else cause.reason,
        place=None if cause == NOT_RECORDED else cause.place,
        position=waiting.index(request_id) + 1,
        kv=_refused_blocks(request_id, step.outcome),
    )


def _refused_blocks(request_id: str, outcome: AdmissionOutcome | None) -> KVNumbers | None:
    if outcome is None:
        return None
    refusals = (outcome, *(outcome.skipped or ()))
    return next((each.kv for each in refusals if each.req_id == request_id), None)


def seen_before(request_ids: Iterable[str], trace: RankTrace, until: int) -> dict[str, FateKind]:
    """Requests that the step ``until`` does not list: whether they had ended by then, or not arrived yet."""
    fates = dict.fromkeys(request_ids, FateKind.NOT_ARRIVED)
    if not fates:
        return fates
    for step in TraceReader(trace.files, requests=False).steps():
        if step.number > until:
            break
        snapshot = step.snapshot or StepSnapshot(step=-1)
        if snapshot.waiting_req_ids_omitted or snapshot.running_req_ids_omitted:
            return dict.fromkeys(fates, FateKind.UNKNOWN)
        arrived = {each.req_id for each in step.arrived}
        for request_id in fates:
            if request_id in arrived or any(request_id in (ids or ()) for ids in _queues(snapshot)):
                fates[request_id] = FateKind.ENDED
    return fates


def _queues(snapshot: StepSnapshot) -> tuple[list[str] | None, list[str] | None]:
    return snapshot.running_req_ids, snapshot.waiting_req_ids


# ---------------------------------------------------------------------------------------------------------------------
# Where two traces part: step by step beside each other until their decisions differ.
#
# A decision is who is admitted, resumed and preempted, and who gets how many tokens. The queues and the free blocks
# that a step finds are no decision: where they differ earlier, the answer says so, for it may be the cause.

_DECIDED_LISTS = (
    ("scheduled_new_req_ids", "requests admitted"),
    ("scheduled_resumed_req_ids", "requests resumed"),
    ("preempted_req_ids", "requests preempted"),
    ("scheduled_running_req_ids", "running requests scheduled"),
    ("num_scheduled_tokens", "tokens per request"),
)
_DECIDED_COUNTS = (
    ("num_new", "requests admitted"),
    ("num_resumed", "requests resumed"),
    ("num_preempted", "requests preempted"),
    ("token_sum", "tokens scheduled"),
)
_QUEUE_LISTS = (("running_req_ids", "running requests"), ("waiting_req_ids", "waiting requests"))
_QUEUE_COUNTS = (("num_running", "running requests"), ("num_waiting", "length of the queue"))
_BLOCK_COUNTS = (("free_blocks", "free blocks"),)
_IDS_SHOWN = 4


class StateDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step that finds other queues, or other free blocks, in one trace than in the other."""

    step: int
    what: str
    """What differs first: ``running requests``, ``length of the queue``, ``free blocks`` ..."""
    detail: str
    equal_steps: int
    """Steps before it, in which it is the same."""
    rank: int | None = None
    """The engine whose step it is, where there are several."""


class PartedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of which the two decide differently."""

    request_id: str
    a: Fate
    b: Fate


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step with different decisions. ``a`` or ``b`` is None if that trace has ended."""

    what: str
    """What differs first: ``requests admitted``, ``tokens per request``, ``one ends`` ..."""
    detail: str
    equal_steps: int
    """Steps before it, in which the two decide the same."""
    a: DecidedStep | None
    b: DecidedStep | None
    rank: int | None = None
    """The engine whose step it is, where there are several."""
    requests: list[PartedRequest] = []
    """The first four that they decide differently about: what became of each in either trace, and why."""


class Parting(NamedTuple):
    """Where two traces part, and since when what they decide about differs."""

    decision: FirstDifference | None
    """None if every step decides the same."""
    states: list[StateDifference]
    """The first difference of the queues and the first of the free blocks, not after that of the decisions."""


class _Differing(msgspec.Struct, frozen=True):
    what: str
    detail: str
    ids: Sequence[str] = ()


def first_difference(a: Path | str, b: Path | str) -> Parting:
    """The first step in which the two decide differently, and what differed before. Of one engine, reading stops there.

    Times are not compared: the same decisions on a faster clock are the same decisions. Of several engines each is
    compared with the one of the same rank; the difference is the one that comes first on the clock of ``a``.
    """
    in_a, in_b = find_ranks(a), find_ranks(b)
    if [each.rank for each in in_a] != [each.rank for each in in_b]:
        detail = f"{_ranks(in_a)} in A, {_ranks(in_b)} in B"
        return Parting(FirstDifference(what="engines", detail=detail, equal_steps=0, a=None, b=None), [])
    pairs = [_in_pair(*pair) for pair in zip(in_a, in_b, strict=True)]
    return min(pairs, key=_moment_in_a)


def _ranks(traces: Sequence[RankTrace]) -> str:
    return "1" if len(traces) == 1 else f"{len(traces):,} ({', '.join(f'rank {each.rank}' for each in traces)})"


def _moment_in_a(parting: Parting) -> tuple[float, bool]:
    """Pairs that part come first, then those whose states differ."""
    difference = parting.decision
    if difference is None:
        return inf, not parting.states
    return (difference.a.ts if difference.a is not None and difference.a.ts is not None else inf), False


def _in_pair(a: RankTrace, b: RankTrace) -> Parting:
    states: dict[str, StateDifference] = {}
    start_a, start_b = a.run_start, b.run_start
    for equal, (in_a, in_b) in enumerate(zip_longest(_steps(a), _steps(b))):
        facts = tuple(facts_of(step) for step in (in_a, in_b) if step is not None)
        if in_a is not None and in_b is not None and in_a.number == in_b.number:
            start_a = in_a.ts if start_a is None else start_a
            start_b = in_b.ts if start_b is None else start_b
            for kind, found in _state_differences(in_a, in_b, facts, states):
                states[kind] = StateDifference(
                    step=in_a.number, what=found.what, detail=found.detail, equal_steps=equal, rank=a.rank
                )
        differing = _decision_difference(in_a, in_b, facts)
        if differing is not None:
            decision = FirstDifference(
                what=differing.what,
                detail=differing.detail,
                equal_steps=equal,
                a=decided_step(in_a, start_a),
                b=decided_step(in_b, start_b),
                rank=a.rank,
                requests=_parted(differing.ids, (in_a, in_b), (a, b)),
            )
            return Parting(decision, list(states.values()))
    return Parting(None, list(states.values()))


def _steps(trace: RankTrace) -> Iterator[Step]:
    return iter(()) if trace.is_idle else TraceReader(trace.files, requests=False).steps()


# ---- what differs in a step


def _decision_difference(a: Step | None, b: Step | None, facts: Sequence[StepFacts]) -> _Differing | None:
    """How the same step of two traces decides differently, the most telling first."""
    if a is None or b is None:
        detail = f"{'B' if a is None else 'A'} goes on after the last step of {'A' if a is None else 'B'}"
        return _Differing("one ends", detail)
    if a.number != b.number:
        return _Differing("step number", f"{a.number:,} in A, {b.number:,} in B")
    return _lists_differ(a.decision, b.decision, _DECIDED_LISTS) or _counts_differ(facts, _DECIDED_COUNTS)


def _state_differences(
    a: Step, b: Step, facts: Sequence[StepFacts], known: Mapping[str, StateDifference]
) -> Iterator[tuple[str, _Differing]]:
    if "queues" not in known:
        found = _lists_differ(a.snapshot, b.snapshot, _QUEUE_LISTS) or _counts_differ(facts, _QUEUE_COUNTS)
        if found is not None:
            yield "queues", found
    if "blocks" not in known:
        found = _counts_differ(facts, _BLOCK_COUNTS)
        if found is not None:
            yield "blocks", found


def _lists_differ(a: object, b: object, fields: Sequence[tuple[str, str]]) -> _Differing | None:
    for field, what in fields:
        in_a, in_b = getattr(a, field, None), getattr(b, field, None)
        if in_a is not None and in_b is not None and in_a != in_b:
            return _ids(what, in_a, in_b)
    return None


def _counts_differ(facts: Sequence[StepFacts], fields: Sequence[tuple[str, str]]) -> _Differing | None:
    for field, what in fields:
        count_a, count_b = (getattr(each, field) for each in facts)
        if count_a != count_b and count_a is not None and count_b is not None:
            return _Differing(what, f"{count_a:,} in A, {count_b:,} in B")
    return None


def _ids(what: str, a: list[str] | dict[str, int], b: list[str] | dict[str, int]) -> _Differing:
    of_a, of_b = set(a), set(b)
    only_a, only_b = [each for each in a if each not in of_b], [each for each in b if each not in of_a]
    if isinstance(a, dict) and isinstance(b, dict) and not only_a and not only_b:
        changed = [each for each in a if a[each] != b[each]]
        first = changed[0]
        return _Differing(what, f"{first}: {a[first]:,} in A, {b[first]:,} in B", changed)
    parts = [f"only in {name}: {_listed(ids)}" for name, ids in (("A", only_a), ("B", only_b)) if ids]
    detail = "; ".join(parts) or "the same, in another order"
    return _Differing(what, detail, [*only_a, *only_b])


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _IDS_SHOWN:,} more" if len(ids) > _IDS_SHOWN else ""
    return ", ".join(ids[:_IDS_SHOWN]) + more


# ---- what became of the requests


def _parted(
    ids: Sequence[str], steps: tuple[Step | None, Step | None], traces: tuple[RankTrace, RankTrace]
) -> list[PartedRequest]:
    shown = ids[:_IDS_SHOWN]
    a, b = (_fates(shown, step, trace) for step, trace in zip(steps, traces, strict=True))
    return [PartedRequest(request_id=each, a=a[each], b=b[each]) for each in shown]


def _fates(ids: Sequence[str], step: Step | None, trace: RankTrace) -> dict[str, Fate]:
    if step is None:
        return dict.fromkeys(ids, Fate(kind=FateKind.UNKNOWN))
    fates = {each: fate for each in ids if (fate := fate_of(each, step)) is not None}
    missing = seen_before([each for each in ids if each not in fates], trace, step.number)
    return fates | {each: Fate(kind=kind) for each, kind in missing.items()}
