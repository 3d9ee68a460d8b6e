"""How requests got on, by what every trace has: queues, tokens, blocks and pins, with or without recorded reasons."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping

import msgspec
import numpy as np

from tokenyard.core.params import user_name
from tokenyard.explain.classifier import BUCKETS, Bucket, Classification, classify
from tokenyard.trace.facts import StepFacts, micros
from tokenyard.trace.held_back import main_reason
from tokenyard.trace.schema import StepDecision, StepSnapshot
from tokenyard.trace.steps import Step
from tokenyard.vocabulary import Family, Reason

STUCK_S = 10.0
"""Seconds without a scheduled token, while requests are there, from which on the engine counts as stuck."""
_NOT_STUCK = (Reason.PAUSED, Reason.WAITING_STREAM_INPUT)
"""Reasons of standing still that the host wanted, or has to end."""
_SHORTEST_S = 1.0
"""Seconds from which on a stretch without a token is noted."""
_CHANGES_KEPT = 8
_LARGE_PART = 2 / 3
"""Share of what was short from which on its holder is named."""
_MIDDLE = (0.05, 0.95)
"""Between these parts of all waiting lies the time that a report calls its span."""


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in a row that scheduled no token although requests were there."""

    first_step: int
    last_step: int
    start_ts: float
    """When the first of them began, on the trace's clock: no token since."""
    end_ts: float
    """When a token was scheduled again, or the trace ended."""
    ends_trace: bool
    num_running: int
    """In the last of them, as the next."""
    num_waiting: int
    reason: str | None = None
    """The recorded reason of the last of them."""

    @property
    def seconds(self) -> float:
        return self.end_ts - self.start_ts

    @property
    def is_stuck(self) -> bool:
        """Whether the last thing that the trace shows is an engine that does not move."""
        return self.ends_trace and self.seconds >= STUCK_S and self.reason not in _NOT_STUCK


class PoolChange(msgspec.Struct, frozen=True, kw_only=True):
    """The number of KV blocks changed while the engine ran."""

    step: int
    ts: float | None
    before: int
    after: int


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of ended turns that were kept (``pinned_blocks``)."""

    blocks: int
    """In the last step."""
    share: float
    """The same as a share of the pool."""
    jobs: int | None
    """Jobs that they belong to."""
    from_blocks: int
    """Blocks from which they only grew until the last step."""
    since_ts: float | None
    """When that began; None where they were let go last."""
    waiting_share: float | None
    """Their share of the pool while requests waited, every second counted once for each of these; None: none did."""


class WaitSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which nine tenths of the waiting lay, on the trace's clock."""

    start_ts: float
    end_ts: float


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of most of what was short, while requests waited for it."""

    kind: str
    """``request``, ``job``, or ``jobs``: those whose ids begin with the name."""
    name: str
    of: str
    """What was short: ``tokens`` of steps, ``blocks`` or ``seats``."""
    share: float


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace shows of waiting without any recorded reason. Times are request-seconds."""

    start_ts: float | None = None
    """When the first step began, on the trace's clock."""
    end_ts: float | None = None
    """The last moment of the trace."""
    request_s: float = 0.0
    """Time of all requests in the queues: (running + waiting) x duration, over the steps."""
    waited_s: float = 0.0
    """Time of requests that steps left waiting without a recorded reason."""
    buckets: dict[str, float] = {}
    """Bucket -> its part of ``waited_s``, most first."""
    span: WaitSpan | None = None
    """None where nothing waited, or the trace has no times."""
    stall: Stall | None = None
    """The longest stretch without a token, of those of a second or more; the one that the trace ends with where the
    engine is stuck there."""
    pool_changes: list[PoolChange] = []
    """The first eight."""
    pins: Pins | None = None
    """None where nothing was pinned."""
    holder: Holder | None = None
    """None where no one had two thirds of it, and of a trace that records reasons."""


def family_of(buckets: Mapping[str, float]) -> Family:
    """The family whose buckets have most."""
    families: dict[Family, float] = {}
    for name, seconds in buckets.items():
        family = BUCKETS[Bucket(name)].family
        families[family] = families.get(family, 0.0) + seconds
    return max(families, key=families.__getitem__, default=Family.UNKNOWN)


class ProgressCounter:
    """Gathers a :class:`Progress`. Costs about a microsecond a step."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._request_micros = 0
        self._waited: Counter[Bucket] = Counter()
        """Request-microseconds."""
        self._moments, self._weights = array("d"), array("d")
        """When requests waited without a recorded reason, and how long all of them together."""
        self._open: tuple[Bucket, int] | None = None
        """Bucket of the step that goes on, and requests that it left waiting without a recorded reason."""
        self._stall: tuple[StepFacts, StepFacts] | None = None
        """First and last step of the stretch without tokens that goes on."""
        self._longest: Stall | None = None
        self._stuck: Stall | None = None
        """Where another engine stands still."""
        self._end: float | None = None
        """The last moment of this engine."""
        self._total: int | None = None
        self._changes: list[PoolChange] = []
        self._last_pinned: StepFacts | None = None
        """The last step that says how many blocks are pinned."""
        self._pins_from = 0
        self._pins_since: float | None = None
        self._most_pinned = 0
        self._pinned_micros, self._waiting_micros = 0.0, 0
        """Share of the pool that is pinned, times request-microseconds of waiting; and the latter alone."""

    def step(self, facts: StepFacts, verdict: Classification) -> None:
        """A step was decided."""
        self._start = facts.ts if self._start is None else self._start
        waiting = verdict.unadmitted if verdict.unadmitted is not None else facts.num_waiting
        self._open = (verdict.bucket, waiting) if facts.outcome is None and waiting else None
        if facts.token_sum == 0 and facts.ts is not None and ((facts.num_running or 0) + (facts.num_waiting or 0)):
            self._stall = (facts, facts) if self._stall is None else (self._stall[0], facts)
        elif self._stall is not None:
            self._end_stall(facts.ts)
        total = facts.total_blocks
        if total != self._total and total is not None:
            if self._total is not None and len(self._changes) < _CHANGES_KEPT:
                self._changes.append(PoolChange(step=facts.step, ts=facts.ts, before=self._total, after=total))
            self._total = total
        if facts.pinned_blocks is not None:
            self._pinned(facts, facts.pinned_blocks)

    def _pinned(self, facts: StepFacts, blocks: int) -> None:
        """Note since when pins only grew."""
        last = self._last_pinned
        before = 0 if last is None else last.pinned_blocks or 0
        if blocks < before:
            self._pins_from, self._pins_since = blocks, None
        elif blocks > before and self._pins_since is None:
            self._pins_since = facts.ts
        self._most_pinned = max(self._most_pinned, blocks)
        self._last_pinned = facts

    def _end_stall(self, now: float | None) -> None:
        stall, self._stall = self._stall, None
        if stall is not None and now is not None:
            self._longest = _longer(self._longest, _stall(*stall, now, ends=False))

    def step_ended(self, facts: StepFacts, passed: int) -> None:
        """The last step is over, after so many microseconds."""
        self.steps_repeated(facts, lasted=passed)
        held, self._open = self._open, None
        if held is not None:
            bucket, requests = held
            self._waited[bucket] += requests * passed
            if facts.ts is not None:
                self._moments.append(facts.ts)
                self._weights.append(requests * passed / 1e6)

    def steps_repeated(self, facts: StepFacts, *, lasted: int) -> None:
        """Steps like this one lasted so many microseconds, whose refusals are recorded where there are any."""
        waiting = lasted * (facts.num_waiting or 0)
        self._request_micros += waiting + lasted * (facts.num_running or 0)
        if waiting and facts.pinned_blocks and facts.total_blocks:
            self._pinned_micros += waiting * facts.pinned_blocks / facts.total_blocks
        self._waiting_micros += waiting

    def join(self, other: ProgressCounter) -> None:
        """The steps of another engine, too; changes of pools and pins are those of the engine with most."""
        self._start = min((each for each in (self._start, other._start) if each is not None), default=None)
        self._request_micros += other._request_micros
        self._waited += other._waited
        self._moments.extend(other._moments)
        self._weights.extend(other._weights)
        self._changes = sorted([*self._changes, *other._changes], key=lambda each: each.ts or 0.0)[:_CHANGES_KEPT]
        self._end = max((each for each in (self._end, other._end) if each is not None), default=None)
        self._longest = _longer(self._longest, other._longest)
        self._stuck = _longer(self._stuck, other._last_stall)
        if other._most_pinned > self._most_pinned:
            for name in ("_most_pinned", "_last_pinned", "_pins_from", "_pins_since"):
                setattr(self, name, getattr(other, name))
        self._pinned_micros += other._pinned_micros
        self._waiting_micros += other._waiting_micros

    def seen_until(self, end: float | None) -> None:
        """The last moment of this engine so far."""
        self._end = end

    @property
    def _last_stall(self) -> Stall | None:
        """The stretch without a token that goes on."""
        return None if self._stall is None or self._end is None else _stall(*self._stall, self._end, ends=True)

    def result(self, holder: Holder | None = None) -> Progress:
        """The progress so far."""
        last = _longer(self._stuck, self._last_stall)
        stall = last if last is not None and last.is_stuck else _longer(self._longest, last)
        return Progress(
            start_ts=self._start,
            end_ts=self._end,
            request_s=self._request_micros / 1e6,
            waited_s=sum(self._waited.values()) / 1e6,
            buckets={bucket.value: each / 1e6 for bucket, each in self._waited.most_common() if each},
            span=self._span(),
            stall=None if stall is None or stall.seconds < _SHORTEST_S else stall,
            pool_changes=list(self._changes),
            pins=self._pins(),
            holder=holder,
        )

    def _pins(self) -> Pins | None:
        last = self._last_pinned
        if last is None or not self._most_pinned or not last.total_blocks:
            return None
        blocks, waited = last.pinned_blocks or 0, self._waiting_micros
        return Pins(
            blocks=blocks,
            share=blocks / last.total_blocks,
            jobs=last.num_pinned,
            from_blocks=self._pins_from,
            since_ts=self._pins_since,
            waiting_share=self._pinned_micros / waited if waited else None,
        )

    def _span(self) -> WaitSpan | None:
        moments, weights = np.array(self._moments), np.array(self._weights)
        order = np.argsort(moments, kind="stable")
        passed = np.cumsum(weights[order])
        if not len(passed) or not passed[-1]:
            return None
        first, last = np.searchsorted(passed, [part * passed[-1] for part in _MIDDLE])
        return WaitSpan(start_ts=float(moments[order[first]]), end_ts=float(moments[order[last]]))


def _stall(first: StepFacts, last: StepFacts, end: float, *, ends: bool) -> Stall:
    assert first.ts is not None, "only steps with a time begin one"
    return Stall(
        first_step=first.step,
        last_step=last.step,
        start_ts=first.ts,
        end_ts=max(end, first.ts),
        ends_trace=ends,
        num_running=last.num_running or 0,
        num_waiting=last.num_waiting or 0,
        reason=None if last.outcome is None else main_reason(last.outcome),
    )


def _longer(one: Stall | None, other: Stall | None) -> Stall | None:
    if one is None or other is None:
        return one or other
    return other if other.seconds > one.seconds else one


# ---------------------------------------------------------------------------------------------------------------------
# Who had what was short while others waited: from the ids of a trace that records no reasons.

_OF = {Family.TOKENS: "tokens", Family.SEQUENCES: "seats"}
"""What is short in steps of a family; of the others, blocks."""
_NUMBER = re.compile(r"[-_.:#]?\d+$")


class HolderCounter:
    """Takes the steps of a trace in order. Costs some microseconds for each request that runs."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._last: int | None = None
        self._has_gaps = False
        """Steps are missing: what requests hold is not known."""
        self._computed: dict[str, int] = {}
        """Request that runs -> tokens that it holds blocks for."""
        self._waited: Counter[str] = Counter()
        """What was short -> request-microseconds of waiting for it."""
        self._had: dict[str, Counter[str]] = {"tokens": Counter(), "seats": Counter(), "blocks": Counter()}
        """What was short -> request -> what it had of it, times the waiting."""
        self._step: tuple[float, int, str, dict[str, int]] | None = None
        """When the last step began that left requests waiting, how many, for what, and who had it."""

    def step(self, step: Step, facts: StepFacts) -> None:
        """A step of the trace, with its facts."""
        self._end(facts.ts)
        self._has_gaps |= self._last is not None and step.number != self._last + 1
        self._last = step.number
        if step.snapshot is None or step.decision is None:
            return
        self._note_jobs(step.snapshot, step.decision)
        self._note_tokens(step, step.snapshot, step.decision)
        running, tokens = self._computed, step.decision.num_scheduled_tokens or {}
        verdict = classify(facts)
        if verdict.unadmitted and facts.ts is not None:
            of = _OF.get(BUCKETS[verdict.bucket].family, "blocks")
            had = dict(tokens) if of == "tokens" else dict.fromkeys(running, 1) if of == "seats" else dict(running)
            self._step = facts.ts, verdict.unadmitted, of, had

    def _note_jobs(self, snapshot: StepSnapshot, decision: StepDecision) -> None:
        """Note the jobs of requests that are scheduled first; queues are long, and are looked at then alone."""
        if all(name in self._jobs for name in decision.num_scheduled_tokens or ()):
            return
        for ids, jobs in (
            (snapshot.running_req_ids or (), snapshot.running_job_ids or ()),
            (snapshot.waiting_req_ids or (), snapshot.waiting_job_ids or ()),
        ):
            if len(ids) == len(jobs):
                self._jobs.update((name, job or name) for name, job in zip(ids, jobs, strict=True))

    def _note_tokens(self, step: Step, snapshot: StepSnapshot, decision: StepDecision) -> None:
        """Note what each request holds blocks for: its hits, and what was scheduled since it was admitted."""
        running, tokens = self._computed, decision.num_scheduled_tokens or {}
        for lookup in step.lookups:
            if lookup.req_id is not None:
                running[lookup.req_id] = lookup.total_hit_tokens or 0
        for name, number in tokens.items():
            running[name] = running.get(name, 0) + number
        if snapshot.running_req_ids is not None:
            present = {*snapshot.running_req_ids, *tokens}.difference(decision.preempted_req_ids or ())
            for name in [each for each in running if each not in present]:
                del running[name]

    def _end(self, now: float | None) -> None:
        step, self._step = self._step, None
        if step is None or now is None:
            return
        began, waiting, of, had = step
        weight = waiting * max(micros(now) - micros(began), 0)
        self._waited[of] += weight
        total = sum(had.values())
        counts = self._had[of]
        if total:
            for name, part in had.items():
                counts[name] += weight * part // total

    def result(self) -> Holder | None:
        """A request, a job, or jobs of one name that had two thirds of it or more: the narrowest of these."""
        if not self._waited:
            return None
        of = max(self._waited, key=self._waited.__getitem__)
        if of == "blocks" and self._has_gaps:
            return None
        had, groups = self._had[of], {"request": Counter[str](), "job": Counter[str](), "jobs": Counter[str]()}
        for request, number in had.items():
            job = self._jobs.get(request, request)
            groups["request"][request] += number
            groups["job"][job] += number
            groups["jobs"][_whose(job)] += number
        for kind, counts in groups.items():
            total, most = counts.total(), counts.most_common(1)
            if len(counts) > 1 and total and most[0][1] >= _LARGE_PART * total:
                return Holder(kind=kind, name=most[0][0], of=of, share=most[0][1] / total)
        return None


def _whose(job: str) -> str:
    """What jobs of one user have in common: what stands before a slash, or before the number at the end."""
    return user_name(job) if "/" in job else _NUMBER.sub("", job) or job
