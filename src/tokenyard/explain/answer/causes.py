"""What is wrong: every cause that a run shows, the one that explains most first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tokenyard.explain.answer.progress import Pins, Progress, family_of
from tokenyard.explain.answer.when import Span
from tokenyard.explain.answer.whose import BLOCKS, SEATS, SLOTS, TOKENS, Whose
from tokenyard.explain.classifier import Bucket
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.redaction import plain
from tokenyard.units import count, duration, percent
from tokenyard.vocabulary import Family, is_in_flight, reason_meaning

PINS_LEAK, PINS_HELD, POOL_FELL, HOT_ENGINE = "pins_leak", "pins_held", "pool_fell", "hot_engine"
PREEMPTION_STORM, HELD_BACK, CACHE_MISSED = "preemption_storm", "held_back", "cache_missed"
CERTAIN, LIKELY, GUESS = "certain", "likely", "guess"

HARDLY = 0.02
"""Share of requests' time below which waiting is not worth a word."""
_FELT_MS = 1e3
"""Milliseconds in the queue that one request in a hundred waits, from which on waiting is worth a word."""
_LISTED = 0.1
"""Part of the waiting from which on a bucket is named."""
_LEAKED = 0.25
"""Part of the pool by which pins have to grow, without any being let go, to be called growing."""
_MOST_OF_POOL = 0.5
_FALL = 0.05
"""Part of the pool from which on it is said to have fallen."""
_HOT = 0.6
"""Part of the waiting of all engines from which on it is that of one, and times what it is alike."""
_HOT_OVER = 1.5
_STORM = 0.2
"""Preemptions for each request that arrived, and how many at least, from which on they are a storm."""
_STORM_LEAST = 10
_FULL = 0.95
"""Share of the pool from which on what is not in use is evicted."""
_WHOLE_RUN = 0.7
"""Share of the run: of those that came during less of it, it is said when they came."""
_PROVEN = (Bucket.TOK_BUDGET, Bucket.MAX_SEQS, Bucket.KV_EXHAUSTED)
"""Buckets that a step's counts prove."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    code: str
    """``pins_leak``, ``pins_held``, ``pool_fell``, ``hot_engine``, ``preemption_storm``, ``held_back``,
    ``cache_missed``; ``stuck`` where nothing shows why the engine does not move."""
    since_ts: float | None = None
    """When it began, on the trace's clock; None where that is not known."""
    until_ts: float | None = None
    """When it was over; None: it was not."""
    share: float | None = None
    """Its share of what the code is about: the pool, the waiting, the prompt tokens."""
    rank: int | None = None
    """The engine, where it is that of one."""
    whose: Whose | None = None
    sure: str = CERTAIN
    """``certain``: the trace records it; ``likely``: the counts of its steps prove it; ``guess``."""
    sentence: str
    """All of it in words."""


class EngineLoad(msgspec.Struct, frozen=True):
    """One engine's part of a run."""

    rank: int
    waited_s: float
    requests_share: float | None


class Counts(msgspec.Struct, frozen=True):
    """What a report counts beside the progress."""

    queue: LatencyFigures = LatencyFigures()
    arrived: int | None = None
    """Requests that arrived; None where that is not known."""
    engines: Sequence[EngineLoad] = ()
    preemptions: int | None = None
    peak_kv_use: float | None = None


class Loss(msgspec.Struct, frozen=True):
    """The time that requests lost."""

    of: Mapping[str, float]
    """Reason, or bucket -> seconds."""
    is_guessed: bool
    """No reason is recorded, and ``of`` are buckets."""
    total: float
    share: float | None
    unfinished: int | None
    queue: LatencyFigures

    @property
    def worst(self) -> str | None:
        return max(self.of, key=self.of.__getitem__) if self.total else None

    @property
    def is_small(self) -> bool:
        return self.share is not None and self.share < HARDLY

    @property
    def code(self) -> str:
        is_felt = (self.queue.p99 or 0.0) >= _FELT_MS
        return "idle" if not self.total or (self.is_small and not is_felt) else HELD_BACK

    def tail(self) -> str:
        """The tail of the queue, where it is known of nearly all, or a lower bound."""
        return "" if self.queue.p99 is None else f" (queue p99 {self.queue.in_words('p99')})"


def loss_of(
    reasons: Mapping[str, RecordedReason], progress: Progress, counts: Counts, ended: int | None, seconds: float | None
) -> Loss:
    """The time that all requests lost together; ``seconds``: from arrival to end of all of them."""
    lost = {name: reason.seconds for name, reason in reasons.items() if not is_in_flight(name)}
    is_guessed = not reasons and bool(progress.buckets)
    total = progress.waited_s if is_guessed else sum(lost.values(), 0.0)
    unfinished = None if counts.arrived is None or ended is None else max(counts.arrived - ended, 0)
    time = max(seconds or 0.0, progress.request_s) if is_guessed or unfinished else seconds
    return Loss(
        of=progress.buckets if is_guessed else lost,
        is_guessed=is_guessed,
        total=total,
        share=min(total / time, 1.0) if time else None,
        unfinished=unfinished,
        queue=counts.queue,
    )


def causes_of(
    reasons: Mapping[str, RecordedReason], progress: Progress, counts: Counts, loss: Loss, *, is_stuck: bool
) -> list[Cause]:
    """Every cause, in the order in which they explain each other."""
    found = [*_pinned(progress, is_stuck=is_stuck), *_shrunk(progress), *_hot(progress, counts.engines)]
    if not is_stuck and loss.code != "idle":
        is_explained = any(each.code in (PINS_LEAK, PINS_HELD) for each in found)
        storm = list(_storm(progress, counts))
        held = _held(reasons, progress, loss, None if is_explained else progress.whose)
        found += [*storm, *held]
    return [*found, *_missed(progress, counts)]


# ---------------------------------------------------------------------------------------------------------------------
# What the pool shows.


def _is_pinned(pins: Pins) -> bool:
    return max(pins.share, pins.waiting_share or 0.0) >= _MOST_OF_POOL


def _pinned(progress: Progress, *, is_stuck: bool) -> Iterator[Cause]:
    """What pins hold, where that is most of the pool."""
    pins = progress.pins
    if pins is None or not _is_pinned(pins):
        return
    whose = "Pins" if not pins.jobs else f"{count(pins.jobs)} pins"
    grown = (pins.blocks - pins.from_blocks) * pins.share >= _LEAKED * pins.blocks
    if pins.share >= _MOST_OF_POOL and grown and pins.since_ts is not None:
        since = progress.moment(pins.since_ts)
        said = (
            f"{whose} hold {percent(pins.share)} of the KV blocks (pinned_blocks): since {since} they grew from "
            f"{count(pins.from_blocks)} to {count(pins.blocks)}, and none was let go."
        )
        yield Cause(code=PINS_LEAK, since_ts=pins.since_ts, share=pins.share, sentence=said)
    elif is_stuck and pins.share >= _MOST_OF_POOL:
        said = f"{whose} hold {percent(pins.share)} of the KV blocks (pinned_blocks)."
        yield Cause(code=PINS_HELD, share=pins.share, sentence=said)
    elif (pins.waiting_share or 0.0) >= _MOST_OF_POOL:
        said = f"Pins (pinned_blocks) held {percent(pins.waiting_share)} of the KV blocks while requests waited."
        yield Cause(code=PINS_HELD, share=pins.waiting_share, sentence=said)


def _shrunk(progress: Progress) -> Iterator[Cause]:
    """The largest fall of the pool."""
    fall = max(progress.pool_changes, key=lambda each: each.before - each.after, default=None)
    if fall is not None and fall.after <= (1 - _FALL) * fall.before:
        when = "" if fall.ts is None else f" at {progress.moment(fall.ts)}"
        said = f"The pool fell from {count(fall.before)} to {count(fall.after)} KV blocks (total_blocks){when}."
        yield Cause(code=POOL_FELL, since_ts=fall.ts, share=1 - fall.after / fall.before, sentence=said)


# ---------------------------------------------------------------------------------------------------------------------
# Who waited where, for what, and who had it.


def _hot(progress: Progress, engines: Sequence[EngineLoad]) -> Iterator[Cause]:
    """The engine at which most of the waiting is."""
    total, hot = sum(each.waited_s for each in engines), max(engines, key=lambda each: each.waited_s, default=None)
    if hot is None or len(engines) < 2 or total < HARDLY * progress.request_s:
        return
    share = hot.waited_s / total if total else 0.0
    if share < max(_HOT, min(_HOT_OVER / len(engines), 0.9)):
        return
    sent = "" if hot.requests_share is None else f", with {percent(hot.requests_share)} of the requests"
    said = f"Engine {hot.rank} of {len(engines):,} has {percent(share)} of the waiting{sent}."
    yield Cause(
        code=HOT_ENGINE,
        since_ts=_begun(progress.span),
        until_ts=_over(progress.span),
        share=share,
        rank=hot.rank,
        sentence=said,
    )


def _storm(progress: Progress, counts: Counts) -> Iterator[Cause]:
    """Requests that lose their blocks again and again."""
    times, arrived, span = counts.preemptions or 0, counts.arrived, progress.preempted
    if times < max(_STORM_LEAST, _STORM * (arrived or 0)) or span is None:
        return
    requests = "" if arrived is None else f" ({count(arrived)} requests came)"
    said = f"Running requests lost their blocks {count(times)} times{requests}{_during(progress, span)}."
    yield Cause(code=PREEMPTION_STORM, since_ts=_begun(span), until_ts=_over(span), whose=progress.whose, sentence=said)


def _held(
    reasons: Mapping[str, RecordedReason], progress: Progress, loss: Loss, whose: Whose | None
) -> Iterator[Cause]:
    """For what requests waited, and who had it."""
    worst = loss.worst
    if worst is None:
        return
    said = _guessed(progress, loss) if loss.is_guessed else _recorded(progress, loss, reasons[worst])
    if whose is not None:
        said += f" {had(whose, progress)}"
    proven = loss.is_guessed and worst in _PROVEN
    sure = CERTAIN if not loss.is_guessed else LIKELY if proven else GUESS
    share = loss.of[worst] / loss.total
    yield Cause(
        code=HELD_BACK,
        since_ts=_begun(progress.span),
        until_ts=_over(progress.span),
        share=share,
        whose=whose,
        sure=sure,
        sentence=said,
    )


_SHORT = {
    Family.TOKENS: "for the token budget of the steps",
    Family.MEMORY: "for KV blocks",
    Family.SEQUENCES: "for seats (as many ran as max_num_seqs allows)",
    Family.ORDER: "although many KV blocks were free",
}


def _guessed(progress: Progress, loss: Loss) -> str:
    waited = f"{duration(loss.total)} in all" if loss.share is None else f"{percent(loss.share)} of their time"
    named = [
        f"{name} {percent(seconds / loss.total)}"
        for name, seconds in loss.of.items()
        if seconds >= _LISTED * loss.total and name != Bucket.UNKNOWN
    ]
    mostly = " and ".join(filter(None, (_during(progress, progress.span)[1:], _SHORT.get(family_of(loss.of)))))
    guess = f" (by the counts of the steps: {', '.join(named)})" if named else ", the trace does not show for what"
    return f"Requests waited {waited}{loss.tail()}{f', mostly {mostly}' if mostly else ''}{guess}."


def _recorded(progress: Progress, loss: Loss, reason: RecordedReason) -> str:
    worst = loss.worst or ""
    of_it = loss.of[worst] / loss.total
    lost = f"{duration(loss.total)} in all" if loss.share is None else f"{percent(loss.share)} of their time"
    mostly = "" if of_it > 0.99 else f" {percent(of_it)} of that"
    meaning = reason_meaning(worst).rstrip(".")
    word = next(iter(reason.words or ()), None)
    if word is not None:  # the policy's own, that most of it stands for
        worst, meaning = f"{worst} ({plain(word)})", meaning.split(";")[0]
    tail = loss.tail() if loss.is_small else ""
    when = _during(progress, progress.span)
    return f"Requests waited {lost}{tail}{when},{mostly} for {worst}: {meaning[:1].lower()}{meaning[1:]}."


_GROUPS = {
    "request": "request {}",
    "job": "job {}",
    "tenant": "tenant {}",
    "lora": "adapter {}",
    "user": "jobs {}...",
    "length": "prompts of {} tokens or more",
}
_HAD = {
    TOKENS: "took {} of the tokens of these steps",
    SEATS: "had {} of the seats meanwhile",
    BLOCKS: "had {} of the tokens in the KV cache meanwhile",
    SLOTS: "had {} of the LoRA slots meanwhile",
}


def group_name(whose: Whose) -> str:
    """The group in words: ``tenant 9d22``."""
    return _GROUPS[whose.kind].format(plain(whose.name))


def had(whose: Whose, progress: Progress) -> str:
    """What the group had, how many it is, and when it came where that is a part of the run."""
    name = group_name(whose)
    said = f"{name[:1].upper()}{name[1:]} {_HAD[whose.of].format(percent(whose.share))}"
    if whose.kind == "request":
        return f"{said}."
    first, last, came = whose.since_ts, whose.until_ts, ""
    run = None if progress.start_ts is None or progress.end_ts is None else progress.end_ts - progress.start_ts
    if run is not None and first is not None and last is not None and last - first < _WHOLE_RUN * run:
        came = f", all that came from {progress.moment(first)} to {progress.moment(last)}"
    return f"{said}; they are {percent(whose.part)} of the requests{came}."


# ---------------------------------------------------------------------------------------------------------------------
# What the prefix cache shows.


def _missed(progress: Progress, counts: Counts) -> Iterator[Cause]:
    fall = progress.hit_fall
    if fall is None:
        return
    is_full = (counts.peak_kv_use or 0.0) >= _FULL
    why = "the KV blocks were all in use, so others' were evicted" if is_full else "not for want of KV blocks"
    since = progress.moment(fall.ts)
    said = f"Prefix hits fell from {percent(fall.before)} to {percent(fall.after)} of prompt tokens at {since}: {why}."
    yield Cause(
        code=CACHE_MISSED,
        since_ts=fall.ts,
        share=fall.before - fall.after,
        sure=LIKELY if is_full else GUESS,
        sentence=said,
    )


def _begun(span: Span | None) -> float | None:
    return None if span is None else span.start_ts


def _over(span: Span | None) -> float | None:
    return span.end_ts if span is not None and span.is_over else None


def _during(progress: Progress, span: Span | None) -> str:
    """A while in words, with a space before it; empty where it is nearly all of the run."""
    if span is None or span.is_whole:
        return ""
    since = progress.moment(span.start_ts)
    return f" from {since} to {progress.moment(span.end_ts)}" if span.is_over else f" since {since}"
