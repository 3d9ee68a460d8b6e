# cython: auto_pickle=True
"""How requests got on, by what every trace has: queues, tokens, blocks and pins, with or without recorded reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec
import numpy as np

from tokenyard.explain.answer.when import Span, TimeLog
from tokenyard.explain.answer.whose import BLOCKS, SEATS, SLOTS, TOKENS, Whose, WhoseCounter
from tokenyard.explain.classifier import BUCKETS, Bucket, Classification
from tokenyard.trace.facts import StepFacts, micros
from tokenyard.trace.held_back import held_by_reason, main_reason
from tokenyard.trace.schema import PrefixCacheLookup, RequestArrived, RequestFinished
from tokenyard.units import moment
from tokenyard.vocabulary import REASONS, Family, Reason, is_in_flight

STUCK_S = 10.0
"""Seconds without a scheduled token, while requests are there, from which on the engine counts as stuck."""
_NOT_STUCK = (Reason.PAUSED, Reason.WAITING_STREAM_INPUT)
"""Reasons of standing still that the host wanted, or has to end."""
_SHORTEST_S = 1.0
"""Seconds from which on a stretch without a token is noted."""
_CHANGES_KEPT = 8
_HIT_WINDOWS = 60
_FELL = 0.3
"""Part of prompt tokens by which hits have to fall, at least by half, to be said to have fallen."""
_SIDE = 0.1
"""Part of all prompt tokens that has to lie on either side of such a moment."""


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


class HitFall(msgspec.Struct, frozen=True, kw_only=True):
    """From a moment on far fewer prompt tokens were found in a cache."""

    ts: float
    before: float
    """Share of prompt tokens that was found until then, and after it."""
    after: float


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace shows of waiting without any recorded reason. Times are request-seconds."""

    start_ts: float | None = None
    """When the first step began, on the trace's clock."""
    origin_ts: float | None = None
    """When the trace began, of which this is a part; None: with ``start_ts``."""
    end_ts: float | None = None
    """The last moment of the trace."""
    request_s: float = 0.0
    """Time of all requests in the queues: (running + waiting) x duration, over the steps."""
    waited_s: float = 0.0
    """Time of requests that steps left waiting without a recorded reason."""
    buckets: dict[str, float] = {}
    """Bucket -> its part of ``waited_s``, most first."""
    waited_for: dict[str, float] = {}
    """Recorded reason, or bucket where none is recorded -> request-seconds, most first; without those in flight."""
    span: Span | None = None
    """When most of what was short most was waited for; None where nothing was, or the trace has no times."""
    whose: Whose | None = None
    """The requests that had what was short meanwhile; None where no one had half of it."""
    preempted: Span | None = None
    """When most requests lost their blocks; None where none did."""
    hit_fall: HitFall | None = None
    stall: Stall | None = None
    """The longest stretch without a token, of those of a second or more; the one that the trace ends with where the
    engine is stuck there."""
    pool_changes: list[PoolChange] = []
    """The first eight."""
    pins: Pins | None = None
    """None where nothing was pinned."""

    def moment(self, ts: float) -> str:
        """A moment in words: a time of day, or how long after the beginning of the trace."""
        return moment(ts, (self.start_ts if self.origin_ts is None else self.origin_ts) or 0.0)


def short_of(name: str) -> str | None:
    """What those had for whom a recorded reason, or a bucket, was missing; None: no request had it."""
    if name == Reason.LORA_SLOTS:
        return SLOTS
    kinds = {Family.TOKENS: TOKENS, Family.SEQUENCES: SEATS, Family.MEMORY: BLOCKS, Family.ORDER: BLOCKS}
    kinds[Family.PREEMPTED] = BLOCKS
    return kinds.get(family_named(name))


def family_named(name: str) -> Family:
    """The family of a recorded reason or a bucket."""
    if name in REASONS:
        return REASONS[Reason(name)].family
    return BUCKETS[Bucket(name)].family if name in list(Bucket) else Family.UNKNOWN


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
        self.origin: float | None = None
        """When the trace began, where only a part of it is taken."""
        self._start: float | None = None
        self._request_micros = 0
        self._waited: Counter[Bucket] = Counter()
        """Request-microseconds."""
        self._log, self._hits, self._preempted = TimeLog(), TimeLog(), TimeLog()
        """When requests waited, and for what; when prefixes were looked up; when requests lost their blocks."""
        self._whose = WhoseCounter()
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
        if facts.num_preempted and facts.ts is not None:
            self._preempted.count("", micros(facts.ts), facts.num_preempted)

    def arrived(self, record: RequestArrived) -> None:
        """A request came."""
        self._whose.arrived(record)

    def looked_up(self, record: PrefixCacheLookup) -> None:
        """A prefix was looked up."""
        self._whose.looked_up(record)
        if record.ts is not None and record.total_prompt_tokens:
            self._hits.count("asked", micros(record.ts), record.total_prompt_tokens)
            self._hits.count("found", micros(record.ts), min(record.total_hit_tokens or 0, record.total_prompt_tokens))

    def computed(self, ts: float | None, scheduled: Mapping[str, int]) -> None:
        """Take what a step computed, of a trace that does not record how long requests are."""
        self._whose.computed(ts, scheduled)

    def finished(self, record: RequestFinished) -> None:
        """A request ended."""
        self._whose.finished(record)

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
        self.steps_repeated(facts, facts.ts, passed)
        held, self._open = self._open, None
        if held is not None:
            bucket, requests = held
            self._waited[bucket] += requests * passed
            if facts.ts is not None and requests > 0:
                self._log.add(bucket.value, micros(facts.ts), micros(facts.ts) + passed, requests)

    def steps_repeated(self, facts: StepFacts, since: float | None, lasted: int) -> None:
        """Steps like this one lasted so many microseconds from ``since`` on; their refusals are recorded where there
        are any.
        """
        if facts.outcome is not None and since is not None and lasted > 0:
            start = micros(since)
            for name, requests in held_by_reason(facts.outcome).items():
                if not is_in_flight(name):
                    self._log.add(name, start, start + lasted, requests)
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
        self._log.join(other._log)
        self._hits.join(other._hits)
        self._preempted.join(other._preempted)
        self._whose.join(other._whose)
        self._changes = sorted([*self._changes, *other._changes], key=lambda each: each.ts or 0.0)[:_CHANGES_KEPT]
        self._end = max((each for each in (self._end, other._end) if each is not None), default=None)
        self._longest = _longer(self._longest, other._longest)
        self._stuck = _longer(self._stuck, other._last_stall)
        if other._most_pinned > self._most_pinned:
            self._most_pinned, self._last_pinned = other._most_pinned, other._last_pinned
            self._pins_from, self._pins_since = other._pins_from, other._pins_since
        self._pinned_micros += other._pinned_micros
        self._waiting_micros += other._waiting_micros

    def seen_until(self, end: float | None) -> None:
        """The last moment of this engine so far."""
        self._end = end
        self._whose.seen_until(end)

    @property
    def _last_stall(self) -> Stall | None:
        """The stretch without a token that goes on."""
        return None if self._stall is None or self._end is None else _stall(*self._stall, self._end, ends=True)

    def result(self) -> Progress:
        """The progress so far."""
        last = _longer(self._stuck, self._last_stall)
        stall = last if last is not None and last.is_stuck else _longer(self._longest, last)
        waited = {name: self._log.total(name) / 1e6 for name in self._log.names}
        return Progress(
            start_ts=self._start,
            origin_ts=self.origin,
            end_ts=self._end,
            request_s=self._request_micros / 1e6,
            waited_s=sum(self._waited.values()) / 1e6,
            buckets={bucket.value: each / 1e6 for bucket, each in self._waited.most_common() if each},
            waited_for={name: seconds for name, seconds in waited.items() if seconds},
            span=self._span(self._log, list(waited)),
            whose=self._whose_of(waited),
            preempted=self._span(self._preempted, [""]),
            hit_fall=self._hit_fall(),
            stall=None if stall is None or stall.seconds < _SHORTEST_S else stall,
            pool_changes=list(self._changes),
            pins=self._pins(),
        )

    def _whose_of(self, waited: Mapping[str, float]) -> Whose | None:
        """Return who had what was short most."""
        kinds: defaultdict[str, float] = defaultdict(float)
        for name, seconds in waited.items():
            kinds[short_of(name) or ""] += seconds
        of = max(kinds, key=kinds.__getitem__, default="")
        return self._whose.result(self._log, [name for name in waited if short_of(name) == of], of) if of else None

    def _span(self, log: TimeLog, names: list[str]) -> Span | None:
        if self._start is None or self._end is None:
            return None
        return log.span(names, self._start, self._end)

    def _hit_fall(self) -> HitFall | None:
        """The moment from which on hits were fewest beside those before it, where they fell."""
        (moments, asked), (when, found) = self._hits.passed(["asked"]), self._hits.passed(["found"])
        if not len(found) or not found[-1]:
            return None
        edges = np.linspace(moments[0], moments[-1], _HIT_WINDOWS + 1)[1:-1]
        before, hits = np.interp(edges, moments, asked), np.interp(edges, when, found)
        after, left = asked[-1] - before, found[-1] - hits
        with np.errstate(divide="ignore", invalid="ignore"):
            fell = hits / before - left / after
        fell[np.minimum(before, after) < _SIDE * asked[-1]] = 0.0
        at = int(np.argmax(fell * np.sqrt(before * after)))
        was, now = hits[at] / max(before[at], 1), left[at] / max(after[at], 1)
        if fell[at] < _FELL or now > was / 2:
            return None
        return HitFall(ts=float(edges[at]), before=float(was), after=float(now))

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
