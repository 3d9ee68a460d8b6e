"""What an input has measured beside what its replay gives, of the same requests, and whether to trust the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.explain.figures import LatencyFigures, latency_figures
from tokenyard.units import milliseconds, percent

Floats = npt.NDArray[np.float64]

AGREES = 1.1
"""A replay agrees whose figures are at most so many times those that were measured, or they so many times its own."""
MISLEADS = 1.5
"""Likewise, from where on its times are not to be trusted."""
_HITS_AGREE = 0.05
"""Share of prompt tokens by which hits may differ where they agree."""
_MORE_AT_ONCE = 1.1
"""Times its seats that a deployment's requests seem to generate at once for the ends of a log being a little off."""
_FAR = 3.0
"""Times by which step times of the deployment that was measured are hardly ever off."""
FEW = 20
"""Requests below which a comparison says little."""
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
"""Latency -> how it is headed."""
_JUDGED = ("mean", "p90")
"""Statistics that decide whether a replay agrees."""


class RequestTimes(NamedTuple):
    """Times and hits of requests, one element each; what is not known is NaN."""

    arrived: Floats
    """Seconds."""
    ttft: Floats
    tpot: Floats
    e2e: Floats
    cached: Floats
    """Prompt tokens that were found in the prefix cache."""


class MeasuredPair(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, as it was measured and as the replay has it."""

    measured: float
    replayed: float | None = None
    """None: nothing was replayed."""
    ratio: float | None = None
    """Replayed over measured; None if that cannot be computed."""

    @classmethod
    def of(cls, measured: float, replayed: float | None) -> MeasuredPair:
        """Both sides of a figure, with their ratio."""
        ratio = None if replayed is None or not measured else replayed / measured
        return cls(measured=measured, replayed=replayed, ratio=ratio)


class MeasuredLatency(msgspec.Struct, frozen=True, kw_only=True):
    """A latency of the requests that both sides have, in milliseconds."""

    requests: int
    """How many those are."""
    measured: LatencyFigures
    replayed: LatencyFigures | None
    """None: nothing was replayed."""
    ratio: LatencyFigures | None
    """Replayed over measured, statistic by statistic; a ratio, no milliseconds."""

    def pair(self, statistic: str) -> MeasuredPair | None:
        """One statistic of both; None if it was not measured."""
        measured = getattr(self.measured, statistic)
        theirs = None if self.replayed is None else getattr(self.replayed, statistic)
        return None if measured is None else MeasuredPair.of(measured, theirs)


class MeasuredVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to trust what a replay says besides."""

    code: str
    """``agrees`` (within a tenth), ``off`` (within a half), ``misleads`` (further), ``other_deployment`` (what was
    measured cannot have run on this one), ``hits`` (only hits are compared), ``nothing`` (no request is on both
    sides)."""
    figure: str | None = None
    """The figure that is furthest off, as ``ttft_mean``."""
    ratio: float | None = None
    """Replayed over measured, of that figure."""
    sentence: str


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What step times were multiplied by, to give what was measured."""

    source: str
    """The input that measured."""
    gpu: str
    """The GPU whose step times were compared with it."""
    decode: float
    """Factor of what decodes take."""
    prefill: float
    """Factor of what prompts add to a step."""
    decode_from: str
    """The figure that the first rests on: ``tpot`` or ``e2e``."""
    decode_requests: int
    prefill_requests: int
    """Requests whose TTFT the second rests on, which waited for no place; 0: it is the first one."""
    replays: int
    off: float
    """By what share the means of TTFT, TPOT and E2E still differ, of the one that is furthest off."""

    @property
    def setting(self) -> str:
        """The setting that repeats it."""
        return f"{self.decode:.4g},{self.prefill:.4g}"

    @property
    def sentence(self) -> str:
        """What was done, in words."""
        of = self.decode_from.upper()
        if self.decode == self.prefill == 1:
            met = f"means of {self.decode_requests:,} requests are within {percent(self.off)}"
            return f"Step times of {self.gpu} stay as they are: beside what {self.source} measured, {met}"
        first = f"decode x {self.decode:.3g} (by {of} of {self.decode_requests:,} requests)"
        second = (
            f"prefill x {self.prefill:.3g} (by TTFT of {self.prefill_requests:,} that did not queue)"
            if self.prefill_requests
            else f"prefill as well, for want of a TTFT without a queue (x {self.prefill:.3g})"
        )
        fit = f"after {self.replays} replays the means are within {percent(self.off)}"
        far = "; so large a factor speaks of another GPU, model or setting than was measured" if self.is_far else ""
        return f"Step times of {self.gpu} are scaled to what {self.source} measured: {first}, {second}; {fit}{far}"

    @property
    def is_far(self) -> bool:
        """Whether a factor is larger than step times of one deployment are ever off by."""
        return any(max(each, 1 / each) > _FAR for each in (self.decode, self.prefill))


class MeasuredBeside(msgspec.Struct, frozen=True, kw_only=True):
    """What the input measured, beside what the replay gives."""

    requests: int
    """Requests that are on both sides; of an input that is not replayed, those of which anything was measured."""
    measured_requests: int
    """Requests of the input of which anything was measured."""
    ttft_ms: MeasuredLatency | None = None
    tpot_ms: MeasuredLatency | None = None
    e2e_ms: MeasuredLatency | None = None
    served_per_s: MeasuredPair | None = None
    """Requests a second: those of both sides, from the first arrival to the last end."""
    cached_share: MeasuredPair | None = None
    """Share of prompt tokens that were found in the prefix cache."""
    generating_at_once: int | None = None
    """Most requests between first token and end at one moment, as measured."""
    seats: int | None = None
    """Requests that the deployment runs at once at most."""
    not_served: dict[str, int] = {}
    """Status -> requests of the input that were answered with it; they are not replayed."""
    verdict: MeasuredVerdict | None = None
    """None: nothing was replayed."""
    calibration: Calibration | None = None
    """How step times were scaled to this input; None: they were not."""

    @property
    def is_of_another_deployment(self) -> bool:
        """Whether more requests generated at once, as measured, than the deployment of the replay runs."""
        return self.seats is not None and (self.generating_at_once or 0) > _MORE_AT_ONCE * self.seats

    def latencies(self) -> Iterator[tuple[str, MeasuredLatency]]:
        """The latencies that were measured, by name."""
        for name in NAMES:
            found = getattr(self, f"{name}_ms")
            if found is not None:
                yield name, found


def compared(
    measured: RequestTimes,
    replayed: RequestTimes | None,
    *,
    prompt_tokens: Floats,
    stated_rate: float | None = None,
    seats: int | None = None,
    not_served: dict[str, int] | None = None,
) -> MeasuredBeside:
    """Both sides, of the requests that both have; request by request in the same order, NaN where there is nothing.

    ``stated_rate``: requests that the input says were served a second, all of its own.
    """
    either = ~np.isnan(np.stack((measured.ttft, measured.e2e, measured.cached))).all(axis=0)
    both = either if replayed is None else either & ~np.isnan(replayed.e2e)
    found = MeasuredBeside(
        requests=int(both.sum()),
        measured_requests=int(either.sum()),
        ttft_ms=_latency(*_sides(measured, replayed, "ttft")),
        tpot_ms=_latency(*_sides(measured, replayed, "tpot")),
        e2e_ms=_latency(*_sides(measured, replayed, "e2e")),
        served_per_s=_rates(measured, replayed, stated_rate if bool(both.all()) else None),
        cached_share=_cached_share(*_sides(measured, replayed, "cached"), prompt_tokens),
        generating_at_once=_at_once(measured),
        seats=seats,
        not_served=not_served or {},
    )
    return found if replayed is None else msgspec.structs.replace(found, verdict=verdict_on(found))


def _sides(measured: RequestTimes, replayed: RequestTimes | None, name: str) -> tuple[Floats, Floats | None]:
    """One quantity of both, NaN wherever one of them has none."""
    ours: Floats = getattr(measured, name)
    if replayed is None:
        return ours, None
    theirs: Floats = getattr(replayed, name)
    return np.where(np.isnan(theirs), np.nan, ours), np.where(np.isnan(ours), np.nan, theirs)


def _latency(measured: Floats, replayed: Floats | None) -> MeasuredLatency | None:
    known = measured[~np.isnan(measured)]
    if not len(known):
        return None
    ours = latency_figures(known)
    theirs = None if replayed is None else latency_figures(replayed[~np.isnan(replayed)])
    ratio = None if theirs is None else _ratios(ours, theirs)
    return MeasuredLatency(requests=len(known), measured=ours, replayed=theirs, ratio=ratio)


def _ratios(measured: LatencyFigures, replayed: LatencyFigures) -> LatencyFigures:
    names = ("mean", "p50", "p90", "p95", "p99", "max")
    pairs = {name: (getattr(measured, name), getattr(replayed, name)) for name in names}
    return LatencyFigures(
        **{name: theirs / ours for name, (ours, theirs) in pairs.items() if ours and theirs is not None}
    )


def _rates(measured: RequestTimes, replayed: RequestTimes | None, stated: float | None) -> MeasuredPair | None:
    """Requests a second, of those whose end both sides know; ``stated`` where the input knows no arrivals."""
    ours = measured.arrived + _sides(measured, replayed, "e2e")[0]
    rate = _rate(measured.arrived, ours)
    rates = stated if rate is None else rate
    if rates is None:
        return None
    if replayed is None:
        return MeasuredPair.of(rates, None)
    theirs = replayed.arrived + replayed.e2e
    known = np.where(np.isnan(ours), np.nan, theirs) if rate is not None else theirs
    return MeasuredPair.of(rates, _rate(replayed.arrived, known))


def _rate(arrived: Floats, ends: Floats) -> float | None:
    """Requests a second, from the first of them that arrives to the last that ends."""
    known = ~np.isnan(ends)
    if known.sum() < 2:
        return None
    seconds = float(ends[known].max() - arrived[known].min())
    return float(known.sum()) / seconds if seconds > 0 else None


def _cached_share(measured: Floats, replayed: Floats | None, prompt_tokens: Floats) -> MeasuredPair | None:
    known = ~np.isnan(measured)
    tokens = float(prompt_tokens[known].sum())
    if not tokens:
        return None
    theirs = None if replayed is None else float(replayed[known].sum()) / tokens
    return MeasuredPair.of(float(measured[known].sum()) / tokens, theirs)


def _at_once(measured: RequestTimes) -> int | None:
    """Most requests between their first token and their end; None where moments are not known."""
    first, end = measured.arrived + measured.ttft, measured.arrived + measured.e2e
    known = ~np.isnan(first) & ~np.isnan(end)
    if not known.any():
        return None
    moments = np.concatenate((end[known], first[known]))
    steps = np.concatenate((np.full(known.sum(), -1), np.full(known.sum(), 1)))
    order = np.lexsort((steps, moments))  # who ends makes room before who begins takes it
    return int(np.cumsum(steps[order]).max())


# ---- whether to trust the rest


def verdict_on(found: MeasuredBeside) -> MeasuredVerdict:
    """Whether to trust what the replay says besides, by the figure that is furthest off."""
    if not found.requests:
        sentence = "No request that was measured was served in the replay as well."
        return MeasuredVerdict(code="nothing", sentence=sentence)
    of = f" Of {found.requests} requests only: that says little." if found.requests < FEW else ""
    worst = _worst(found)
    if worst is None:
        return _on_hits(found, of)
    name, pair = worst
    code, sentence = _grade(pair), _sentence(name, pair)
    if found.is_of_another_deployment:
        code = "other_deployment"
        sentence = (
            f"As measured, {found.generating_at_once:,} requests generated at once, and this deployment runs"
            f" {found.seats:,}: it is not the one that was measured. {sentence}"
        )
    return MeasuredVerdict(code=code, figure=name, ratio=pair.ratio, sentence=sentence + of)


_GRADES = ("agrees", "off", "misleads")


def _off(pair: MeasuredPair) -> float:
    """How many times one side is the other, from 1 on."""
    return max(pair.ratio, 1 / pair.ratio) if pair.ratio else math.inf


def _grade(pair: MeasuredPair) -> str:
    off = _off(pair)
    return _GRADES[(off > AGREES) + (off > MISLEADS)]


def _worst(found: MeasuredBeside) -> tuple[str, MeasuredPair] | None:
    """The judged figure whose two sides are furthest apart, a p90 only where no mean has its grade; None: there is
    none.
    """
    pairs = {
        f"{name}_{statistic}": pair
        for name, latency in found.latencies()
        for statistic in _JUDGED
        if (pair := latency.pair(statistic)) is not None
    }
    if found.served_per_s is not None:
        pairs["served_per_s"] = found.served_per_s

    def badness(name: str) -> tuple[int, bool, float]:
        return _GRADES.index(_grade(pairs[name])), not name.endswith("p90"), _off(pairs[name])

    worst = max(pairs, key=badness, default=None)
    return None if worst is None else (worst, pairs[worst])


def _sentence(name: str, pair: MeasuredPair) -> str:
    code, off = _grade(pair), _off(pair)
    if code == "agrees":
        return f"Measured and replayed agree within {max(1, math.ceil(100 * (off - 1)))} %."
    if name == "served_per_s":
        both = f"Measured {pair.measured:,.3g} requests/s, the replay serves {pair.replayed or 0:,.3g}"
    else:
        latency, _, statistic = name.partition("_")
        shown = f"{NAMES[latency]} {statistic} {milliseconds(pair.measured)}"
        both = f"Measured {shown}, the replay gives {milliseconds(pair.replayed)}"
    times = f"{off:.3g} times" if pair.ratio and pair.ratio > 1 else f"1/{off:.3g} of it"
    if code == "off":
        return f"{both}: {times}; read the predicted times as that far off."
    return f"{both}: {times}; do not trust the predicted times."


def _on_hits(found: MeasuredBeside, of: str) -> MeasuredVerdict:
    """The verdict where no time was measured."""
    pair = found.cached_share
    if pair is None or pair.replayed is None:
        return MeasuredVerdict(code="nothing", sentence="Nothing that was measured can be compared.")
    apart = pair.replayed - pair.measured
    agree = "agree" if abs(apart) <= _HITS_AGREE else f"are {100 * apart:+.1f} points apart"
    sentence = (
        f"Only hits were measured; measured and replayed {agree}. How far to trust times, the input does not say."
    )
    return MeasuredVerdict(code="hits", figure="cached_share", ratio=pair.ratio, sentence=sentence + of)
