"""The verdict: what a report comes to, in one sentence and as fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import msgspec

from tokenyard.explain.advice.rules import Advice, Relief
from tokenyard.explain.assumed_drafts import AssumedAcceptance
from tokenyard.explain.classifier import Bucket
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.population import Outcomes
from tokenyard.explain.progress import STUCK_S, Holder, Pins, Progress, Stall, family_of
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.explain.slo import Goodput, Objective
from tokenyard.explain.steady import Load, rate_in_words
from tokenyard.quick_named_tuple import NamedTuple
from tokenyard.redaction import plain
from tokenyard.units import count, duration, figure_label, milliseconds, moment, percent
from tokenyard.vocabulary import Family, is_in_flight, reason_meaning

HARDLY = 0.02
"""Share of requests' time below which waiting is not worth a word."""
_NOTABLE = 0.005
"""Share by which a figure changes that is worth a word."""
_SHOWN = ("outcomes.served", "ttft_ms.p90", "tpot_ms.p90")
_FELT_MS = 1e3
"""Milliseconds in the queue that one request in a hundred waits, from which on waiting is worth a word."""


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """The change that costs least, of those that helped when they were replayed."""

    flag: str
    """The flag and its value, to be pasted behind ``vllm serve``."""
    cost: str
    """``setting``, ``memory`` and so on: what it takes."""
    changes: dict[str, float]
    """Figure -> share by which it grew; below zero it shrank."""
    unsure: list[str] = []
    """Figures whose change is within what step times may be off by."""


class Waiting(NamedTuple):
    """What a verdict takes of a report beside the recorded reasons."""

    progress: Progress = Progress()
    queue: LatencyFigures = LatencyFigures()
    arrived: int | None = None
    """Requests that arrived; None where that is not known."""
    engines: int = 1
    load: Load | None = None


class Overload(msgspec.Struct, frozen=True, kw_only=True):
    """More arrives than is served."""

    offered_requests_per_s: float
    served_requests_per_s: float
    engines: int | None = None
    """About how many deployments like this one would serve it, all alike; None where one serves nothing, or where
    clients give up: what is done for them says nothing of that."""
    gpus: int | None = None
    """About how many GPUs these have, or those of ``flags`` do."""
    flags: str | None = None
    """Changes with which the queue did not grow when they were replayed; None: none that was tried, or none was."""
    flags_for_these: str | None = None
    """Changes with which each of these requests was served, in too short a time to tell whether that lasts."""
    was_tried: bool = False
    """Changes were replayed together."""
    cancelled: int = 0
    """How many of those that came meanwhile were cancelled, where so many are that the queue stays short for it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a tired person needs to know first."""

    code: str
    """``stuck``: the engine did not move when the trace ended; ``overloaded``: more arrives than is served, and the
    queue grows; ``missed``: a service level does not hold;
    ``held_back``: requests lost time to the scheduler; ``idle``: hardly any; ``empty``: no request ended."""
    missed: list[str] = []
    """Bounds that do not hold, as ``ttft_p90``."""
    doubtful: list[str] = []
    """Bounds on the time per token that come out otherwise over the range of an assumed acceptance of drafts."""
    assumed_acceptance: list[float] | None = None
    """The rates of drafts that are right which were assumed, by position; None: given, measured, or no drafts."""
    reason: str | None = None
    """The recorded reason that cost most."""
    bucket: str | None = None
    """The bucket that cost most, by the counts of steps, in a trace that records no reasons."""
    family: str | None = None
    """What was short in most of that time, of a family of buckets."""
    lost_s: float = 0.0
    """Request-seconds lost to all reasons, or to all buckets, without those of requests whose step was in flight."""
    share: float | None = None
    """Share of requests' time from arrival to end; None where that is not known."""
    of_it: float | None = None
    """Share of ``lost_s`` that ``reason``, or ``bucket``, took."""
    unfinished: int | None = None
    """Requests that arrived and had not ended; None where either is not known."""
    lever: Lever | None = None
    overload: Overload | None = None
    """What arrives and what is served, where the run is overloaded."""
    sentence: str
    """All of it in words."""


def verdict_of(
    reasons: Mapping[str, RecordedReason],
    goodput: Goodput | None,
    advice: Sequence[Advice],
    *,
    ended: int | None,
    seconds: float | None,
    overload: Overload | None = None,
    waiting: Waiting | None = None,
    drafts: AssumedAcceptance | None = None,
    people: Outcomes | None = None,
) -> Verdict:
    """The verdict of a run in which so many requests ended (None: not known), with its advice if it has any.

    ``reasons`` are those that held requests back; ``seconds`` the time from arrival to end of all requests together,
    None where that is not known. ``waiting``: what shows where no reason is recorded; ``drafts``: what TPOT
    rests on; ``people``: how many were served, and how many not.
    """
    waiting = waiting or Waiting()
    loss = _loss_of(reasons, waiting, ended, seconds)
    bounds = [] if goodput is None else goodput.objectives
    missed = [each for each in bounds if each.met is False]
    stall = waiting.progress.stall
    is_stuck = stall is not None and stall.is_stuck
    code = "stuck" if is_stuck else "missed" if missed else "empty" if ended == 0 else loss.code
    lever = _lever(advice) if code in ("missed", "held_back") else None
    said = []
    if overload is not None and not is_stuck:
        code, lever = "overloaded", lever if (overload.flags or overload.flags_for_these) is None else None
        said.append(_overloaded(overload))
    elif waiting.load is not None and waiting.load.falls_behind:
        said.append(_falls_behind(waiting.load))
    said += _waited(code, missed, reasons, loss, waiting)
    if people is not None and people.refused:
        said.append(f"{people.refused:,} of {people.arrived:,} requests were refused.")
    if lever is not None:
        said.append(_help(lever, [each.figure for each in missed if each.figure is not None]))
    elif missed:
        said += [_idea(each) for each in advice if each.is_of_bound][:1]
    doubtful: list[Objective] = []
    if drafts is not None and ended:
        doubtful = [each for each in bounds if drafts.doubts(each.name, each.value_ms, each.bound_ms)]
        said.append(str(drafts))
        said += [
            f"Over that range {each.name} (bound {milliseconds(each.bound_ms)}) may hold or not." for each in doubtful
        ]
    return Verdict(
        code=code,
        missed=[each.name for each in missed],
        doubtful=[each.name for each in doubtful],
        assumed_acceptance=None if drafts is None else drafts.rates,
        reason=None if loss.is_guessed else loss.worst,
        bucket=loss.worst if loss.is_guessed else None,
        family=family_of(loss.of).value if loss.is_guessed else None,
        lost_s=loss.total,
        share=loss.share,
        of_it=None if loss.worst is None else loss.of[loss.worst] / loss.total,
        unfinished=loss.unfinished,
        lever=lever,
        overload=overload,
        sentence=" ".join(said),
    )


def overload_of(load: Load | None, relief: Relief | None, gpus: int | None) -> Overload | None:
    """Return what a run says of being overloaded; None where it is not. ``gpus``: how many the run has."""
    if load is None or not load.is_overloaded or load.offered_requests_per_s is None:
        return None
    # What a server gets done for clients that give up says nothing of what it would without.
    engines = None if load.excess is None or load.cancelled else ceil(load.excess)
    serves_these = relief is not None and relief.serves_these
    is_served = relief is not None and (relief.is_enough or serves_these)
    needed = None if engines is None or gpus is None else engines * gpus
    return Overload(
        offered_requests_per_s=load.offered_requests_per_s,
        served_requests_per_s=load.served_requests_per_s or 0.0,
        engines=engines,
        gpus=relief.gpus if relief is not None and is_served else needed,
        flags=relief.flags if relief is not None and relief.is_enough else None,
        flags_for_these=relief.flags if relief is not None and serves_these else None,
        was_tried=relief is not None,
        cancelled=load.cancelled,
    )


def _falls_behind(load: Load) -> str:
    offered, served = load.offered_requests_per_s or 0.0, load.served_requests_per_s or 0.0
    return (
        f"{rate_in_words(offered)} requests/s arrive, {rate_in_words(served)} are served meanwhile; arrivals are too"
        " short beside their answers to tell whether that lasts."
    )


def _overloaded(overload: Overload) -> str:
    offered, served = map(rate_in_words, (overload.offered_requests_per_s, overload.served_requests_per_s))
    meanwhile = f"{served} are served" if overload.served_requests_per_s else "none is served meanwhile"
    said = f"Overloaded: {offered} requests/s arrive, {meanwhile}; "
    gpus = "" if overload.gpus is None else f"{overload.gpus:,} GPU{'s' * (overload.gpus != 1)}"
    if overload.flags is not None:
        return f"{said}with {overload.flags} all are{f', on {gpus}' * bool(gpus)} (replayed)."
    if overload.flags_for_these is not None:
        these = f"with {overload.flags_for_these} all of these are{f', on {gpus}' * bool(gpus)} (replayed)"
        return f"{said}{these}, in too short a time to tell whether that lasts."
    tried = "nothing that was tried serves it, " if overload.was_tried else ""
    if overload.cancelled:
        return f"{said}{tried}{overload.cancelled:,} of them are cancelled."
    if overload.engines is None:
        return f"{said}{tried or 'less has to arrive, '}and none ended meanwhile."
    like = f"{overload.engines:,} deployments like this one"
    return f"{said}{tried}about {f'{gpus} ({like})' if gpus else like} would."


class _Loss(NamedTuple):
    """The time that requests lost."""

    of: Mapping[str, float]
    """Reason, or bucket -> seconds."""
    is_guessed: bool
    """No reason is recorded, and ``of`` are buckets."""
    total: float
    share: float | None
    unfinished: int | None
    is_felt: bool
    """One request in a hundred waits long in the queue."""

    @property
    def worst(self) -> str | None:
        return max(self.of, key=self.of.__getitem__) if self.total else None

    @property
    def is_small(self) -> bool:
        return self.share is not None and self.share < HARDLY

    @property
    def code(self) -> str:
        return "idle" if not self.total or (self.is_small and not self.is_felt) else "held_back"


def _loss_of(
    reasons: Mapping[str, RecordedReason], waiting: Waiting, ended: int | None, seconds: float | None
) -> _Loss:
    progress = waiting.progress
    lost = {name: reason.seconds for name, reason in reasons.items() if not is_in_flight(name)}
    is_guessed = not reasons and bool(progress.buckets)
    total = progress.waited_s if is_guessed else sum(lost.values(), 0.0)
    unfinished = None if waiting.arrived is None or ended is None else max(waiting.arrived - ended, 0)
    time = max(seconds or 0.0, progress.request_s) if is_guessed or unfinished else seconds
    return _Loss(
        of=progress.buckets if is_guessed else lost,
        is_guessed=is_guessed,
        total=total,
        share=min(total / time, 1.0) if time else None,
        unfinished=unfinished,
        is_felt=(waiting.queue.p99 or 0.0) >= _FELT_MS,
    )


def _waited(
    code: str, missed: Sequence[Objective], reasons: Mapping[str, RecordedReason], loss: _Loss, waiting: Waiting
) -> Iterator[str]:
    """What went wrong, and how long requests waited for what."""
    bare, stall, is_idle = _Bare(waiting, loss), waiting.progress.stall, loss.code == "idle"
    if code == "stuck" and stall is not None:
        yield bare.stuck(stall)
        yield from _causes(waiting.progress, is_stuck=True)
    for each in missed:
        measured = milliseconds(each.value_ms, at_least=each.censored)
        yield f"{each.name} is missed: {measured}, bound {milliseconds(each.bound_ms)}."
    if code == "empty":
        yield "No request ended."
    if is_idle and code in ("idle", "missed"):
        yield bare.idle() if loss.is_guessed else "Requests hardly waited for the scheduler."
    elif loss.is_guessed and not is_idle:
        yield from bare.sentences()
    elif loss.worst is not None and not is_idle and code != "empty":
        yield _held(loss, reasons[loss.worst], bare.tail() if loss.is_small else "")
    if not is_idle and code != "stuck":
        yield from _causes(waiting.progress, is_stuck=False)


def _held(loss: _Loss, reason: RecordedReason, tail: str) -> str:
    """``reason``: the worst; ``tail``: how long a few requests waited."""
    worst = loss.worst or ""
    of_it = loss.of[worst] / loss.total
    lost = f"{duration(loss.total)} in all" if loss.share is None else f"{percent(loss.share)} of their time"
    mostly = "" if of_it > 0.99 else f" {percent(of_it)} of that"
    meaning = reason_meaning(worst).rstrip(".")
    word = next(iter(reason.words or ()), None)
    if word is not None:  # the policy's own, that most of it stands for
        worst, meaning = f"{worst} ({plain(word)})", meaning.split(";")[0]
    return f"Requests waited {lost}{tail},{mostly} for {worst}: {meaning[:1].lower()}{meaning[1:]}."


def _idea(advice: Advice) -> str:
    return f"{advice.diagnosis[:1].upper()}{advice.diagnosis[1:]}: {advice.title}."


def _lever(advice: Sequence[Advice]) -> Lever | None:
    for each in advice:
        trial = each.trial
        if trial is not None and trial.is_vllm and trial.effects:
            changes = {effect.figure: effect.change for effect in trial.effects}
            unsure = [effect.figure for effect in trial.effects if not effect.is_sure]
            return Lever(flag=trial.flag, cost=str(trial.cost), changes=changes, unsure=unsure)
    return None


def _help(lever: Lever, missed: list[str]) -> str:
    changes = [
        f"{figure_label(figure)}{' may be' * (figure in lever.unsure)} {100 * lever.changes[figure]:+.0f} %"
        for figure in dict.fromkeys((*missed, *_SHOWN))
        if abs(lever.changes.get(figure, 0.0)) >= _NOTABLE
    ]
    whole = lever.changes.get("e2e_ms.mean", 0.0)
    may = " may" if "e2e_ms.mean" in lever.unsure else ""
    later = f", but answers{may} end later (E2E mean {100 * whole:+.0f} %)" if whole >= _NOTABLE else ""
    return f"With {lever.flag}: {', '.join(changes)}{later} (replayed)." if changes else ""


# ---------------------------------------------------------------------------------------------------------------------
# Words for what shows without recorded reasons.

_SHORT = {
    Family.TOKENS: "for the token budget of the steps",
    Family.MEMORY: "for KV blocks",
    Family.SEQUENCES: "for seats (as many ran as max_num_seqs allows)",
    Family.ORDER: "although many KV blocks were free",
}
_LISTED = 0.1
"""Part of the waiting from which on a bucket is named."""
_MANY = 0.05
"""Part of the requests from which on it is said that they had not ended."""
_WHOLE = 0.8
"""Part of the trace that a span of waiting has to leave something of, to be named."""
_LEAKED = 0.25
"""Part of the pool by which pins have to grow, without any being let go, to be called growing."""
_MOST_OF_POOL = 0.5


class _Bare(NamedTuple):
    """A run, by what shows without recorded reasons."""

    waiting: Waiting
    loss: _Loss

    def stuck(self, stall: Stall) -> str:
        start = self.waiting.progress.start_ts or 0.0
        where = f"In an engine of {self.waiting.engines} no" if self.waiting.engines > 1 else "No"
        why = "" if stall.reason is None else f" ({plain(stall.reason)})"
        said = (
            f"{where} token since {moment(stall.start_ts, start)}, {duration(stall.seconds)} before the trace ends: "
            f"{count(stall.num_running)} run and {count(stall.num_waiting)} wait{why}"
        )
        return f"{said}; {self._unfinished()} never ended." if self.loss.unfinished else f"{said}."

    def idle(self) -> str:
        return f"Requests hardly waited: {percent(self.loss.share)} of their time in the queues{self.tail()}."

    def sentences(self) -> Iterator[str]:
        progress = self.waiting.progress
        waited = (
            f"{duration(self.loss.total)} in all"
            if self.loss.share is None
            else f"{percent(self.loss.share)} of their time"
        )
        named = [
            f"{name} {percent(seconds / self.loss.total)}"
            for name, seconds in self.loss.of.items()
            if seconds >= _LISTED * self.loss.total and name != Bucket.UNKNOWN
        ]
        mostly = " and ".join(each for each in (self._when(), _SHORT.get(family_of(self.loss.of))) if each)
        guess = f" (by the counts of the steps: {', '.join(named)})" if named else ", the trace does not show for what"
        yield f"Requests waited {waited}{self.tail()}{f', mostly {mostly}' if mostly else ''}{guess}."
        stall = progress.stall
        if stall is not None and stall.is_stuck:
            return
        if progress.holder is not None and not _is_pinned(progress.pins):
            yield _had(progress.holder)
        if stall is not None and stall.seconds >= STUCK_S:
            start = progress.start_ts or 0.0
            yield f"No token was scheduled for {duration(stall.seconds)} from {moment(stall.start_ts, start)} on."
        if self._is_many_unfinished:
            yield f"{self._unfinished()} had not ended when the trace did."

    def tail(self) -> str:
        """The tail of the queue, where it is known of nearly all, or a lower bound."""
        queue = self.waiting.queue
        return "" if queue.p99 is None else f" (queue p99 {queue.in_words('p99')})"

    @property
    def _is_many_unfinished(self) -> bool:
        return bool(self.loss.unfinished) and (self.loss.unfinished or 0) >= _MANY * (self.waiting.arrived or 0)

    def _unfinished(self) -> str:
        return f"{count(self.loss.unfinished)} of {count(self.waiting.arrived)} requests"

    def _when(self) -> str:
        progress = self.waiting.progress
        span, start, end = progress.span, progress.start_ts, progress.end_ts
        if span is None or start is None or end is None or span.end_ts - span.start_ts >= _WHOLE * (end - start):
            return ""
        return f"from {moment(span.start_ts, start)} to {moment(span.end_ts, start)}"


def _is_pinned(pins: Pins | None) -> bool:
    return pins is not None and max(pins.share, pins.waiting_share or 0.0) >= _MOST_OF_POOL


def _causes(progress: Progress, *, is_stuck: bool) -> Iterator[str]:
    """What the trace shows of the pool that would explain it."""
    yield from _pinned(progress, is_stuck=is_stuck)
    yield from _shrunk(progress)


def _pinned(progress: Progress, *, is_stuck: bool) -> Iterator[str]:
    """What pins hold, where that is most of the pool."""
    pins = progress.pins
    if pins is None or not _is_pinned(pins):
        return
    whose = "Pins" if not pins.jobs else f"{count(pins.jobs)} pins"
    grown = (pins.blocks - pins.from_blocks) * pins.share >= _LEAKED * pins.blocks
    if pins.share >= _MOST_OF_POOL and grown and pins.since_ts is not None:
        since = moment(pins.since_ts, progress.start_ts or 0.0)
        yield (
            f"{whose} hold {percent(pins.share)} of the KV blocks (pinned_blocks): since {since} they grew from "
            f"{count(pins.from_blocks)} to {count(pins.blocks)}, and none was let go."
        )
    elif is_stuck and pins.share >= _MOST_OF_POOL:
        yield f"{whose} hold {percent(pins.share)} of the KV blocks (pinned_blocks)."
    elif (pins.waiting_share or 0.0) >= _MOST_OF_POOL:
        yield f"Pins (pinned_blocks) held {percent(pins.waiting_share)} of the KV blocks while requests waited."


def _shrunk(progress: Progress) -> Iterator[str]:
    """The largest fall of the pool."""
    fall = max(progress.pool_changes, key=lambda each: each.before - each.after, default=None)
    if fall is not None and fall.after < fall.before:
        when = "" if fall.ts is None else f" at {moment(fall.ts, progress.start_ts or 0.0)}"
        yield f"The pool fell from {count(fall.before)} to {count(fall.after)} KV blocks (total_blocks){when}."


def _had(holder: Holder) -> str:
    who = {"request": "Request {}", "job": "Job {}", "jobs": "Jobs {}..."}[holder.kind].format(plain(holder.name))
    what = {
        "tokens": "took {} of the tokens of these steps",
        "seats": "had {} of the seats meanwhile",
        "blocks": "had {} of the tokens in the KV cache meanwhile",
    }[holder.of]
    return f"{who} {what.format(percent(holder.share))}."
