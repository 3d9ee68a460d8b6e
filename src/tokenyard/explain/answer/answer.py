"""The answer to a run: what is wrong, since when, whose requests it is, what would help, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import msgspec

from tokenyard.explain.advice.rules import Advice, Relief
from tokenyard.explain.answer.causes import HELD_BACK, Cause, Counts, Loss, causes_of, loss_of
from tokenyard.explain.answer.progress import STUCK_S, Progress, Stall, family_of
from tokenyard.explain.answer.remedies import SCALE, SETTING, Remedy, remedies_for
from tokenyard.explain.assumed_drafts import AssumedAcceptance
from tokenyard.explain.jobs import PinLedger
from tokenyard.explain.population import Outcomes
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.explain.slo import Goodput, Objective
from tokenyard.explain.steady import Load, rate_in_words
from tokenyard.redaction import plain
from tokenyard.units import count, duration, figure_label, milliseconds, percent

_NOTABLE = 0.005
"""Share by which a figure changes that is worth a word."""
_SHOWN = ("outcomes.served", "ttft_ms.p90", "tpot_ms.p90")
_MANY = 0.05
"""Part of the requests from which on it is said that they had not ended."""


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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a tired person needs to know first."""

    code: str
    """``stuck``: the engine did not move when the trace ended; ``overloaded``: more arrives than is served, and the
    queue grows; ``missed``: a service level does not hold;
    ``held_back``: requests lost time to the scheduler; ``idle``: hardly any; ``empty``: no request ended."""
    causes: list[Cause] = []
    """What is wrong, the first explains most; empty where nothing is."""
    since_ts: float | None = None
    """When that began, on the trace's clock; None: not known, or nothing is wrong."""
    until_ts: float | None = None
    """When it was over; None: it was not."""
    remedies: list[Remedy] = []
    """What would help, most likely first."""
    sure: str | None = None
    """How sure the first cause is: ``certain``, ``likely`` or ``guess``."""
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

    @property
    def cause(self) -> str | None:
        """The code of the first cause; None: nothing is wrong."""
        return self.causes[0].code if self.causes else None

    def __str__(self) -> str:
        """The sentence, then what would help, a line each."""
        tried = {True: "replayed, and it helped", False: "not tried"}
        return "\n".join([self.sentence, *(f"  {each.title} ({tried[each.is_tried]})" for each in self.remedies)])


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is made of: everything that a report knows."""

    progress: Progress = Progress()
    reasons: Mapping[str, RecordedReason] = {}
    """Recorded reasons that held requests back."""
    counts: Counts = Counts()
    ended: int | None = None
    """Requests that ended; None: not known."""
    seconds: float | None = None
    """From arrival to end, of all requests together; None where that is not known."""
    load: Load | None = None
    overload: Overload | None = None
    goodput: Goodput | None = None
    advice: Sequence[Advice] = ()
    drafts: AssumedAcceptance | None = None
    """What TPOT rests on."""
    pins: PinLedger | None = None
    people: Outcomes | None = None
    """How many were served, and how many not."""


def answer_of(told: Told) -> Answer:
    """The answer to a run, or to a part of it."""
    progress, overload = told.progress, told.overload
    loss = loss_of(told.reasons, progress, told.counts, told.ended, told.seconds)
    bounds = [] if told.goodput is None else told.goodput.objectives
    missed = [each for each in bounds if each.met is False]
    is_stuck = progress.stall is not None and progress.stall.is_stuck
    code = "stuck" if is_stuck else "missed" if missed else "empty" if told.ended == 0 else loss.code
    causes = causes_of(told.reasons, progress, told.counts, loss, is_stuck=is_stuck)
    lever = _lever(told.advice) if code in ("missed", HELD_BACK) else None
    if overload is not None and not is_stuck:
        code, lever = "overloaded", lever if (overload.flags or overload.flags_for_these) is None else None
    remedies = remedies_for(
        causes, told.advice, is_stuck=is_stuck, engines=None if overload is None else overload.engines
    )
    doubtful = _doubtful(told, bounds)
    stall = progress.stall
    if is_stuck and stall is not None and not causes:
        causes = [Cause(code="stuck", since_ts=stall.start_ts, sentence=_stuck(told, stall, loss))]
    first = causes[0] if causes else None
    return Answer(
        code=code,
        causes=causes,
        since_ts=None if first is None else first.since_ts,
        until_ts=None if first is None else first.until_ts,
        remedies=remedies,
        sure=None if first is None else first.sure,
        missed=[each.name for each in missed],
        doubtful=[each.name for each in doubtful],
        assumed_acceptance=None if told.drafts is None else told.drafts.rates,
        reason=None if loss.is_guessed else loss.worst,
        bucket=loss.worst if loss.is_guessed else None,
        family=family_of(loss.of).value if loss.is_guessed else None,
        lost_s=loss.total,
        share=loss.share,
        of_it=None if loss.worst is None else loss.of[loss.worst] / loss.total,
        unfinished=loss.unfinished,
        lever=lever,
        overload=overload,
        sentence=" ".join(_sentences(_Found(told, code, loss, causes, missed, lever, remedies, doubtful))),
    )


def _doubtful(told: Told, bounds: Sequence[Objective]) -> list[Objective]:
    drafts = told.drafts
    if drafts is None or not told.ended:
        return []
    return [each for each in bounds if drafts.doubts(each.name, each.value_ms, each.bound_ms)]


class _Found(msgspec.Struct, frozen=True):
    """What is said in words."""

    told: Told
    code: str
    loss: Loss
    causes: Sequence[Cause]
    missed: Sequence[Objective]
    lever: Lever | None
    remedies: Sequence[Remedy]
    doubtful: Sequence[Objective]


def _sentences(found: _Found) -> Iterator[str]:
    """All of it in words: what is wrong, why, what would help, what it rests on."""
    told, loss, code = found.told, found.loss, found.code
    if told.pins is not None and not told.pins.made and told.ended:
        yield "No pin was made: this policy kept no KV between turns here, so only its order of the queue tells."
    yield from _wrong(found)
    if code == "empty":
        yield "No request ended."
    elif loss.code == "idle" and code in ("idle", "missed"):
        yield _idle(loss)
    unsaid = ("stuck",) if code != "empty" else ("stuck", HELD_BACK)
    yield from (each.sentence for each in found.causes if each.code not in unsaid)
    if loss.is_guessed and loss.code != "idle" and code != "stuck":
        yield from _stopped(told, loss)
    if told.people is not None and told.people.refused:
        yield f"{told.people.refused:,} of {told.people.arrived:,} requests were refused."
    yield from _helps(found)
    if told.drafts is not None and told.ended:
        yield str(told.drafts)
        for each in found.doubtful:
            yield f"Over that range {each.name} (bound {milliseconds(each.bound_ms)}) may hold or not."


def _wrong(found: _Found) -> Iterator[str]:
    told, stall = found.told, found.told.progress.stall
    if found.code == "stuck" and stall is not None:
        yield _stuck(told, stall, found.loss)
        return
    if told.overload is not None:
        yield _overloaded(told.overload)
    elif told.load is not None and told.load.falls_behind:
        yield _falls_behind(told.load)
    for each in found.missed:
        measured = milliseconds(each.value_ms, at_least=each.censored)
        yield f"{each.name} is missed: {measured}, bound {milliseconds(each.bound_ms)}."


def _helps(found: _Found) -> Iterator[str]:
    if found.lever is not None:
        yield _help(found.lever, [each.figure for each in found.missed if each.figure is not None])
    elif found.remedies and found.remedies[0].code not in (SETTING, SCALE):
        yield f"To do: {found.remedies[0].title}."
    elif found.missed:
        yield from [_idea(each) for each in found.told.advice if each.is_of_bound][:1]


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


def _stuck(told: Told, stall: Stall, loss: Loss) -> str:
    engines = len(told.counts.engines)
    where = f"In an engine of {engines} no" if engines > 1 else "No"
    why = "" if stall.reason is None else f" ({plain(stall.reason)})"
    said = (
        f"{where} token since {told.progress.moment(stall.start_ts)}, {duration(stall.seconds)} before the trace ends: "
        f"{count(stall.num_running)} run and {count(stall.num_waiting)} wait{why}"
    )
    return f"{said}; {_unfinished(told, loss)} never ended." if loss.unfinished else f"{said}."


def _idle(loss: Loss) -> str:
    if loss.is_guessed:
        return f"Requests hardly waited: {percent(loss.share)} of their time in the queues{loss.tail()}."
    return "Requests hardly waited for the scheduler."


def _stopped(told: Told, loss: Loss) -> Iterator[str]:
    """A while without a token, and who had not ended, of a trace that records no reasons."""
    stall, arrived = told.progress.stall, told.counts.arrived or 0
    if stall is not None and stall.seconds >= STUCK_S:
        since = told.progress.moment(stall.start_ts)
        yield f"No token was scheduled for {duration(stall.seconds)} from {since} on."
    if loss.unfinished and loss.unfinished >= _MANY * arrived:
        yield f"{_unfinished(told, loss)} had not ended when the trace did."


def _unfinished(told: Told, loss: Loss) -> str:
    return f"{count(loss.unfinished)} of {count(told.counts.arrived)} requests"


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
