"""The verdict: what a report comes to, in one sentence and as fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from tokenyard.explain.advice.rules import Advice, Relief
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.explain.slo import Goodput
from tokenyard.explain.steady import Load, rate_in_words
from tokenyard.redaction import plain
from tokenyard.units import duration, figure_label, milliseconds, percent
from tokenyard.vocabulary import reason_meaning

HARDLY = 0.02
"""Share of requests' time below which waiting is not worth a word."""
_NOTABLE = 0.005
"""Share by which a figure changes that is worth a word."""
_SHOWN = ("ttft_ms.p90", "tpot_ms.p90")


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """The change that costs least, of those that helped when they were replayed."""

    flag: str
    """The flag and its value, to be pasted behind ``vllm serve``."""
    cost: str
    """``setting``, ``memory`` and so on: what it takes."""
    changes: dict[str, float]
    """Figure -> share by which it grew; below zero it shrank."""


class Overload(msgspec.Struct, frozen=True, kw_only=True):
    """More arrives than is served."""

    offered_requests_per_s: float
    served_requests_per_s: float
    engines: int | None = None
    """About how many deployments like this one would serve it, all alike; None where one serves nothing."""
    gpus: int | None = None
    """About how many GPUs these have, or those of ``flags`` do."""
    flags: str | None = None
    """Changes with which the queue did not grow when they were replayed; None: none that was tried, or none was."""
    was_tried: bool = False
    """Changes were replayed together."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a tired person needs to know first."""

    code: str
    """``overloaded``: more arrives than is served, and the queue grows; ``missed``: a service level does not hold;
    ``held_back``: requests lost time to the scheduler; ``idle``: hardly any; ``empty``: no request ended."""
    missed: list[str] = []
    """Bounds that do not hold, as ``ttft_p90``."""
    reason: str | None = None
    """The reason that cost most."""
    lost_s: float = 0.0
    """Request-seconds lost to all reasons."""
    share: float | None = None
    """Share of requests' time from arrival to end; None where that is not known."""
    of_it: float | None = None
    """Share of ``lost_s`` that ``reason`` took."""
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
    ended: int,
    seconds: float | None,
    overload: Overload | None = None,
) -> Verdict:
    """The verdict of a run in which so many requests ended, with its advice if it has any.

    ``reasons`` are those that held requests back; ``seconds`` the time from arrival to end of all requests together,
    None where that is not known.
    """
    lost = {name: reason.seconds for name, reason in reasons.items()}
    total = sum(lost.values())
    worst = max(lost, key=lost.__getitem__) if total else None
    share = min(total / seconds, 1.0) if seconds else None
    missed = [] if goodput is None else [each for each in goodput.objectives if each.met is False]
    is_idle = not total or (share is not None and share < HARDLY)
    code = "missed" if missed else "empty" if not ended else "idle" if is_idle else "held_back"
    lever = None if code in ("idle", "empty") else _lever(advice)
    said = []
    if overload is not None:
        code, lever = "overloaded", lever if overload.flags is None else None
        said.append(_overloaded(overload))
    said += [
        f"{each.name} is missed: {milliseconds(each.value_ms)}, bound {milliseconds(each.bound_ms)}." for each in missed
    ]
    if not ended:
        said += ["No request ended."] * (not missed)
    elif is_idle:
        said += ["Requests hardly waited for the scheduler."] * (overload is None)
    elif worst is not None:
        words = reasons[worst].words
        said.append(_held(worst, total, share, lost[worst] / total, next(iter(words or ()), None)))
    if lever is not None:
        said.append(_help(lever, [each.figure for each in missed if each.figure is not None]))
    elif missed:
        said += [_idea(each) for each in advice if each.is_of_bound][:1]
    return Verdict(
        code=code,
        missed=[each.name for each in missed],
        reason=worst,
        lost_s=total,
        share=share,
        of_it=None if worst is None else lost[worst] / total,
        lever=lever,
        overload=overload,
        sentence=" ".join(said),
    )


def overload_of(load: Load | None, relief: Relief | None, gpus: int | None) -> Overload | None:
    """Return what a run says of being overloaded; None where it is not. ``gpus``: how many the run has."""
    if load is None or not load.is_overloaded or load.offered_requests_per_s is None:
        return None
    engines = None if load.excess is None else ceil(load.excess)
    is_served = relief is not None and relief.is_enough
    needed = None if engines is None or gpus is None else engines * gpus
    return Overload(
        offered_requests_per_s=load.offered_requests_per_s,
        served_requests_per_s=load.served_requests_per_s or 0.0,
        engines=engines,
        gpus=relief.gpus if relief is not None and is_served else needed,
        flags=relief.flags if relief is not None and is_served else None,
        was_tried=relief is not None,
    )


def _overloaded(overload: Overload) -> str:
    offered, served = map(rate_in_words, (overload.offered_requests_per_s, overload.served_requests_per_s))
    said = f"Overloaded: {offered} requests/s arrive, {served} are served; "
    gpus = "" if overload.gpus is None else f"{overload.gpus:,} GPU{'s' * (overload.gpus != 1)}"
    if overload.flags is not None:
        return f"{said}with {overload.flags} all are{f', on {gpus}' * bool(gpus)} (replayed)."
    tried = "nothing that was tried serves it, " if overload.was_tried else ""
    if overload.engines is None:
        return f"{said}{tried or 'less has to arrive, '}and none ended meanwhile."
    like = f"{overload.engines:,} deployments like this one"
    return f"{said}{tried}about {f'{gpus} ({like})' if gpus else like} would."


def _held(worst: str, total: float, share: float | None, of_it: float, word: str | None) -> str:
    """``word``: the policy's own, that most of it stands for."""
    lost = f"{duration(total)} in all" if share is None else f"{percent(share)} of their time"
    mostly = "" if of_it > 0.99 else f" {percent(of_it)} of that"
    meaning = reason_meaning(worst).rstrip(".")
    if word is not None:
        worst, meaning = f"{worst} ({plain(word)})", meaning.split(";")[0]
    return f"Requests waited {lost},{mostly} for {worst}: {meaning[:1].lower()}{meaning[1:]}."


def _idea(advice: Advice) -> str:
    return f"{advice.diagnosis[:1].upper()}{advice.diagnosis[1:]}: {advice.title}."


def _lever(advice: Sequence[Advice]) -> Lever | None:
    for each in advice:
        trial = each.trial
        if trial is not None and trial.is_vllm and trial.effects:
            changes = {effect.figure: effect.change for effect in trial.effects}
            return Lever(flag=trial.flag, cost=str(trial.cost), changes=changes)
    return None


def _help(lever: Lever, missed: list[str]) -> str:
    changes = [
        f"{figure_label(figure)} {100 * lever.changes[figure]:+.0f} %"
        for figure in dict.fromkeys((*missed, *_SHOWN))
        if abs(lever.changes.get(figure, 0.0)) >= _NOTABLE
    ]
    whole = lever.changes.get("e2e_ms.mean", 0.0)
    later = f", but answers end later (E2E mean {100 * whole:+.0f} %)" if whole >= _NOTABLE else ""
    return f"With {lever.flag}: {', '.join(changes)}{later} (replayed)." if changes else ""
