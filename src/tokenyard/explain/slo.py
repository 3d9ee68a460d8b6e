"""Service-level objectives, and how many requests stayed within them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

import msgspec
import numpy as np

from tokenyard.errors import ConfigError, near_names
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.population import LATENCIES, Population

# ---------------------------------------------------------------------------------------------------------------------
# Service-level objectives: bounds on latencies, and how many requests stayed within them (goodput).
#
#     ttft_p90=500ms    nine requests of ten have their first token within 500 ms: it holds or it does not
#     tpot:40           40 ms for every request, as ``vllm bench serve --goodput`` writes it: it is only counted

SLO_FIGURES = ("ttft", "tpot", "itl", "e2e", "queue", "job")
"""Latencies that a bound can be set for, as the report names them (``ttft_ms``)."""
OF_NO_REQUEST = {
    "itl": "a request has many inter-token latencies: bound itl_p99, or tpot for a request",
    "job": "a job has many requests: bound job_p90, or e2e for a request",
}
"""Latencies that a single request has none of -> what to bound instead."""
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_OTHER_NAMES = {"e2el": "e2e"}
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
"""Unit that times are given in -> its milliseconds."""
_UNSEEN = {"mean": 0.0, "p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01, "max": 0.0}
"""Statistic of ITL -> share of requests that may have no token where a bound on it still can hold."""
OPEN_FOR = {
    "not_served": "no request was served",
    "one_token": "no answer has two tokens",
    "untold": "it was not measured",
    "no_jobs": "no request names its job",
    "tokenless": "requests that were not served got no token, and have no gaps",
    "part": "it is of a part of the requests",
    "unfinished": "it rests on requests that were not served",
}
"""Why a bound is open -> the same in words."""
_FORM = re.compile(r"([a-z0-9]+)(?:[_-]([a-z0-9]+))?\s*([=:])\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)")
_FIX = (
    f"give NAME_STATISTIC=TIME, for example ttft_p90=500ms: {', '.join(SLO_FIGURES)}; {', '.join(_STATISTICS)}; in "
    f"{', '.join(MILLISECONDS)}; or NAME:MILLISECONDS for every request, as vllm bench's --goodput"
)


def figure_of(bound: str) -> str | None:
    """The figure that a bound of this name is on, as a report's JSON names it: ``ttft_ms.p90`` of ``ttft_p90``.

    Of a class it has the class's name before it, as the bound has. None of a bound on every request for itself.
    """
    of_class, colon, own = bound.rpartition(":")
    figure, _, statistic = own.partition("_")
    return f"{of_class}{colon}{figure}_ms.{statistic}" if statistic else None


class SLO(msgspec.Struct, frozen=True):
    """One bound."""

    figure: str
    """One of :data:`SLO_FIGURES`."""
    statistic: str | None
    """What of all requests it bounds; None: every request for itself."""
    bound_ms: float
    of: str = ""
    """The class of requests that it is of; empty: all, or every class that has no bounds of its own."""

    @property
    def name(self) -> str:
        """``ttft_p90``; ``interactive:ttft_p90`` of a class."""
        own = self.figure if self.statistic is None else f"{self.figure}_{self.statistic}"
        return f"{self.of}:{own}" if self.of else own

    @property
    def key(self) -> str | None:
        """The figure that it bounds, as :func:`figure_of` names it; None of a bound on every request for itself."""
        return figure_of(self.name)

    def __str__(self) -> str:
        return f"{self.name}:{self.bound_ms:g}" if self.statistic is None else f"{self.name}={self.bound_ms:g}ms"


class Bounded(msgspec.Struct, frozen=True):
    """Latencies that bounds are held against: of all requests, or of a class."""

    slos: Sequence[SLO]
    latencies: Mapping[str, LatencyFigures]
    """The latencies by figure (:data:`SLO_FIGURES`)."""
    of: str | None = None
    """The class; None: all requests."""


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """One bound, and whether it holds."""

    name: str
    bound_ms: float
    value_ms: float | None
    """The figure that it bounds; None where nothing was measured, and of a bound on every request."""
    met: bool | None
    """Whether it holds; None where that is open, and of a bound on every request."""
    is_open: bool = False
    """It is neither met nor missed: the figure rests on requests that were not served, is of a part, or is none."""
    open_for: str | None = None
    """Why, a code of :data:`OPEN_FOR`; None: it is met or missed, or a bound on every request."""
    censored: bool = False
    """The figure is a lower bound."""
    share: float | None
    """Requests that were served within the bound, as a share of all that arrived; None of a mean and of ITL."""

    @property
    def is_of_all(self) -> bool:
        """Whether it bounds a statistic of all requests, and not every one of them."""
        return "_" in self.name.rpartition(":")[2]

    @property
    def figure(self) -> str | None:
        """The figure that it bounds, as :func:`figure_of` names it; None of a bound on every request for itself."""
        return figure_of(self.name)


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were served whole, each of their latencies within its bound, of all that arrived."""

    requests: int | None = None
    """None where no bound is about single requests, or the trace does not record their times."""
    open: int | None = None
    """Requests that have not ended and are within all bounds so far."""
    arrived: int | None = None
    """Everybody who arrived: refused, cancelled and unfinished requests are among them."""
    share: float | None = None
    """``requests`` as a share of ``arrived``."""
    requests_per_s: float | None = None
    met: bool | None
    """Whether every bound on a statistic holds; None where there is none, one is open or was not measured, and none is
    missed."""
    objectives: list[Objective]


def read_slos(given: Iterable[Iterable[str]]) -> tuple[SLO, ...]:
    """What one ``--slo`` or several say, each of them texts that are one bound or more, with commas between them.

    Raises ConfigError.
    """
    slos = [_slo(part) for texts in given for text in texts for part in text.split(",")]
    names = [slo.name for slo in slos]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("slo", " ".join(map(str, slos)), f"{name} is bounded twice: give it once")
    return tuple(slos)


def _slo(text: str) -> SLO:
    found = _FORM.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError("slo", text, _FIX)
    name, statistic, sign, number, unit = found.groups()
    figure = _OTHER_NAMES.get(name, name)
    if figure not in SLO_FIGURES or statistic not in (None, *_STATISTICS) or (unit or "ms") not in MILLISECONDS:
        raise ConfigError("slo", text, _FIX)
    if figure in OF_NO_REQUEST and statistic is None:
        raise ConfigError("slo", text, OF_NO_REQUEST[figure])
    try:
        bound = float(number) * MILLISECONDS[unit or "ms"]
    except ValueError:
        raise ConfigError("slo", text, _FIX) from None
    if not 0 < bound < math.inf:
        raise ConfigError("slo", text, "give a time above 0")
    if statistic is None and sign == "=":
        time = f"{number}{unit or 'ms'}"
        fix = (
            f"say what of all requests is bounded: {name}_p90={time} (nine of ten), {name}_mean={time} or"
            f" {name}_max={time}; or {name}:{bound:g} to count the requests that stay within it (goodput)"
        )
        raise ConfigError("slo", text, fix)
    if not unit and sign == "=":
        label = name if statistic is None else f"{name}_{statistic}"
        fix = f"a number needs its unit: give {label}={number}ms, or {label}={bound / 1e3:g}s"
        raise ConfigError("slo", text, fix)
    return SLO(figure, statistic, bound)


def goodput_of(
    slos: Sequence[SLO], people: Population, figures: Mapping[str, LatencyFigures], seconds: float | None
) -> Goodput | None:
    """Whether the bounds hold, and the goodput, of everybody who arrived; None if there are no bounds."""
    if not slos:
        return None
    objectives = [_objective(slo, people, figures[slo.figure]) for slo in slos]
    bounds = _widest(slos)
    is_untold = figures["ttft"].mean is None and not figures["ttft"].never
    if not bounds or not len(people) or is_untold:
        return Goodput(met=all_met(objectives), objectives=objectives)
    good, may_be = np.ones(len(people), bool), np.ones(len(people), bool)
    for figure, bound in bounds.items():
        held, is_open = people.within(figure, bound / 1e3)
        good, may_be = good & held, may_be & is_open
    number = int(np.count_nonzero(good))
    return Goodput(
        requests=number,
        open=int(np.count_nonzero(may_be)),
        arrived=len(people),
        share=number / len(people),
        requests_per_s=number / seconds if seconds else None,
        met=all_met(objectives),
        objectives=objectives,
    )


def all_met(objectives: Sequence[Objective]) -> bool | None:
    """Whether every bound on a statistic holds; None where there is none, or one is open or was not measured, and none
    is missed.
    """
    met = [each.met for each in objectives if each.is_of_all]
    return False if False in met else None if not met or None in met else True


def _objective(slo: SLO, people: Population, figures: LatencyFigures) -> Objective:
    share = None
    if slo.figure in LATENCIES and slo.statistic != "mean":
        share = people.share_within(slo.figure, slo.bound_ms / 1e3)
    if slo.statistic is None:
        return Objective(name=slo.name, bound_ms=slo.bound_ms, value_ms=None, met=None, share=share)
    value: float | None = getattr(figures, slo.statistic)
    unseen = _UNSEEN[slo.statistic] if slo.figure == "itl" else 1.0
    if people.refused_share > unseen:
        # Those who were refused got no token at all: of them no gap shows.
        return Objective(name=slo.name, bound_ms=slo.bound_ms, value_ms=value, met=False, censored=True, share=share)
    is_missed = slo.statistic in figures.never or (value is not None and value > slo.bound_ms)
    is_sure = value is not None and figures.is_exact(slo.statistic)
    # A statistic of a part is no lower bound, but for the largest of all.
    is_missed &= not figures.left_out or slo.statistic == "max"
    met = False if is_missed else True if is_sure and people.tokenless_share <= unseen else None
    if slo.figure == "itl" and met and not people.outcomes.served:
        met = None
    return Objective(
        name=slo.name,
        bound_ms=slo.bound_ms,
        value_ms=value,
        met=met,
        is_open=met is None,
        open_for=_open_for(slo, people, figures) if met is None else None,
        censored=slo.statistic in figures.censored,
        share=share,
    )


def _open_for(slo: SLO, people: Population, figures: LatencyFigures) -> str:
    """Why a bound on a statistic is open."""
    if not people.outcomes.served:
        return "not_served"
    if figures.mean is None and slo.figure == "job":
        return "no_jobs"
    if figures.mean is None:
        return "one_token" if slo.figure in ("itl", "tpot") and people.num_with("ttft") else "untold"
    if figures.left_out:
        return "part"
    return "tokenless" if figures.is_exact(slo.statistic or "") else "unfinished"


def _widest(slos: Sequence[SLO]) -> dict[str, float]:
    """Bound of each latency for a single request: where several statistics are bounded, the widest."""
    bounds: dict[str, float] = {}
    for slo in slos:
        if slo.figure in LATENCIES and slo.statistic != "mean":
            bounds[slo.figure] = max(slo.bound_ms, bounds.get(slo.figure, 0.0))
    return bounds


SLOs = Mapping[str, str | float] | str | Sequence[str | Sequence[str]] | None
"""Bounds: ``{"ttft_p90": "500ms", "tpot": 40}`` (in ms; the second one of each request), or a text as for ``--slo``, or
several.
"""


def slo_texts(slo: SLOs) -> tuple[tuple[str, ...], ...]:
    """Bounds as texts. Raises ConfigError for other kinds; for texts that are none, it comes when they are read."""
    if slo is None:
        return ()
    if isinstance(slo, Mapping):
        return (tuple(_bound(name, value) for name, value in slo.items()),)
    several = (slo,) if isinstance(slo, str) else slo
    if not isinstance(several, Sequence) or not all(_is_texts(each) for each in several):
        raise ConfigError("slo", slo, f'{_FIX}; or by name: {{"ttft_p90": "500ms"}}')
    return tuple(tuple(each.split() if isinstance(each, str) else each) for each in several)


def _is_texts(value: object) -> bool:
    """Whether it is a text or several."""
    several = value if isinstance(value, list | tuple) else (value,)
    return all(isinstance(each, str) for each in several)


def _bound(name: object, value: object) -> str:
    """One of a mapping, whose name may say of which class it is."""
    figure, _, _ = str(name).rpartition(":")[2].strip().lower().replace("-", "_").partition("_")
    if figure not in (*SLO_FIGURES, *_OTHER_NAMES):
        close = near_names(figure, (*SLO_FIGURES, *_OTHER_NAMES), 1)
        raise ConfigError("slo", name, f"did you mean {close[0]}?" if close else _FIX)
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise ConfigError("slo", value, f'give {name} a time, as "500ms", or a number of milliseconds')
    return f"{name}{_sign(str(name))}{value if isinstance(value, str) else f'{value}ms'}"


def _sign(name: str) -> str:
    """``=`` where the name says a statistic, which its class, if it names one, may not be taken for."""
    return "=" if "_" in name.rpartition(":")[2] else ":"
