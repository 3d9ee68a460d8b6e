"""Service-level objectives, and how long requests took."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from numbers import Real

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError, near_names
from tokenyard.explain.figures import LatencyFigures, Series, TokenGaps
from tokenyard.quick_named_tuple import NamedTuple
from tokenyard.trace.schema import RequestFinished

# ---------------------------------------------------------------------------------------------------------------------
# Service-level objectives: bounds on latencies, and how many requests stayed within them (goodput).
#
#     ttft_p90=500ms    nine requests of ten have their first token within 500 ms: it holds or it does not
#     tpot:40           40 ms for every request, as ``vllm bench serve --goodput`` writes it: it is only counted

SLO_FIGURES = ("ttft", "tpot", "itl", "e2e", "queue")
"""Latencies that a bound can be set for, as the report names them (``ttft_ms``)."""
_OF_A_REQUEST = ("ttft", "tpot", "e2e", "queue")
"""The latencies of which every request has one value."""
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
_OTHER_NAMES = {"e2el": "e2e"}
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
"""Unit that times are given in -> its milliseconds."""
_FORM = re.compile(r"([a-z0-9]+)(?:[_-]([a-z0-9]+))?\s*([=:])\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)")
_FIX = (
    f"give NAME_STATISTIC=TIME, for example ttft_p90=500ms: {', '.join(SLO_FIGURES)}; {', '.join(_STATISTICS)}; in "
    f"{', '.join(MILLISECONDS)}; or NAME:MILLISECONDS for every request, as vllm bench's --goodput"
)

Columns = Mapping[str, npt.NDArray[np.float64]]
"""Latency -> seconds of each ended request, NaN where it has none; shape ``[n]`` each."""


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


class Bounded(NamedTuple):
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
    """Whether it holds; None where nothing was measured, and of a bound on every request."""
    share: float | None
    """Requests within the bound, as a share of those that ended; None of a mean and of ITL."""

    @property
    def figure(self) -> str | None:
        """The figure that it bounds, as :func:`figure_of` names it; None of a bound on every request for itself."""
        return figure_of(self.name)


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that ended well: whole, and each of their latencies within its bound."""

    requests: int | None
    """None where no bound is about single requests, or the trace does not record their times."""
    share: float | None
    """Share of the requests that ended, aborted ones among them, that are within all bounds."""
    requests_per_s: float | None
    met: bool | None
    """Whether every bound on a statistic holds; None where there is none, or one of them was not measured."""
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
    if figure == "itl" and statistic is None:
        raise ConfigError("slo", text, "a request has many inter-token latencies: bound itl_p99, or tpot for a request")
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
    slos: Sequence[SLO], columns: Columns, figures: Mapping[str, LatencyFigures], seconds: float | None
) -> Goodput | None:
    """Whether the bounds hold, and the goodput; None if there are no bounds.

    ``columns["e2e"]`` is NaN for a request that did not end whole.
    """
    if not slos:
        return None
    objectives = [_objective(slo, columns, figures[slo.figure]) for slo in slos]
    judged = [each.met for each, slo in zip(objectives, slos, strict=True) if slo.statistic is not None]
    met = None if not judged or None in judged else all(judged)
    bounds = _widest(slos)
    ended = len(columns["e2e"])
    if not bounds or not ended or np.isnan(columns["ttft"]).all():
        return Goodput(requests=None, share=None, requests_per_s=None, met=met, objectives=objectives)
    good = np.ones(ended, bool)
    for figure, bound in bounds.items():
        good &= _within(columns, figure, bound)
    number = int(np.count_nonzero(good))
    rate = number / seconds if seconds else None
    return Goodput(requests=number, share=number / ended, requests_per_s=rate, met=met, objectives=objectives)


def _objective(slo: SLO, columns: Columns, figures: LatencyFigures) -> Objective:
    value: float | None = None if slo.statistic is None else getattr(figures, slo.statistic)
    met = None if value is None else value <= slo.bound_ms
    share = None
    if slo.figure in _OF_A_REQUEST and slo.statistic != "mean" and len(columns["e2e"]):
        share = float(_within(columns, slo.figure, slo.bound_ms).mean())
    return Objective(name=slo.name, bound_ms=slo.bound_ms, value_ms=value, met=met, share=share)


def _widest(slos: Sequence[SLO]) -> dict[str, float]:
    """Bound of each latency for a single request: where several statistics are bounded, the widest."""
    bounds: dict[str, float] = {}
    for slo in slos:
        if slo.figure in _OF_A_REQUEST and slo.statistic != "mean":
            bounds[slo.figure] = max(slo.bound_ms, bounds.get(slo.figure, 0.0))
    return bounds


def _within(columns: Columns, figure: str, bound_ms: float) -> npt.NDArray[np.bool_]:
    """Which requests ended whole and within the bound; an answer of one token has no time per further token."""
    milliseconds = columns[figure] * 1e3
    is_whole = ~np.isnan(columns["e2e"]) & ~np.isnan(columns["ttft"])
    return is_whole & (~(milliseconds > bound_ms) if figure == "tpot" else milliseconds <= bound_ms)


# ---------------------------------------------------------------------------------------------------------------------
# How long requests took, from the records of their ends.

CUT_SHORT = frozenset(("abort", "error"))
"""Finish reasons of requests that did not get what they asked for; they have no end-to-end time."""
_COLUMNS = ("queue", "ttft", "tpot", "e2e")


class LatencyCounter:
    """Waiting, time to the first token, time per further token, between tokens, and end to end."""

    def __init__(self) -> None:
        self.finished = 0
        self.finish_reasons: Counter[str] = Counter()
        self.output_tokens = 0
        self._columns = {name: array("d") for name in _COLUMNS}
        """Seconds of each ended request, NaN where it has none."""
        self._gaps = TokenGaps()

    def add(self, record: RequestFinished) -> None:
        """Take one finished request."""
        self.finished += 1
        self.finish_reasons[record.finish_reason or "unknown"] += 1
        output = record.num_output_tokens or 0
        self.output_tokens += output
        arrival, first_token, end = record.arrival_time, record.first_token_time, record.finished_time
        queue = ttft = tpot = e2e = nan
        if arrival is not None:
            if record.first_scheduled_time is not None:
                queue = record.first_scheduled_time - arrival
            if first_token is not None:
                ttft = first_token - arrival
            if end is not None and record.finish_reason not in CUT_SHORT:
                e2e = end - arrival
                if first_token is not None and output > 1:
                    tpot = (end - first_token) / (output - 1)
                    self._gaps.request_finished(first_token, end, output)
        for name, seconds in zip(_COLUMNS, (queue, ttft, tpot, e2e), strict=True):
            self._columns[name].append(seconds)

    def step_completed(self, ts: float | None, sampled: int | None) -> None:
        """A step ended, with so many tokens."""
        self._gaps.step_completed(ts, sampled)

    def steps_completed(self, moments: Sequence[float], sampled: int) -> None:
        """Steps ended, with as many tokens each."""
        self._gaps.steps_completed(moments, sampled)

    def join(self, other: LatencyCounter) -> None:
        """The requests of another engine, too."""
        self.finished += other.finished
        self.finish_reasons += other.finish_reasons
        self.output_tokens += other.output_tokens
        for name, column in self._columns.items():
            column.extend(other._columns[name])
        self._gaps.join(other._gaps)

    @property
    def queue_ms(self) -> LatencyFigures:
        """Arrival to first scheduled."""
        return self._figures("queue")

    @property
    def ttft_ms(self) -> LatencyFigures:
        """Arrival to first token."""
        return self._figures("ttft")

    @property
    def tpot_ms(self) -> LatencyFigures:
        """Per output token after the first."""
        return self._figures("tpot")

    @property
    def e2e_ms(self) -> LatencyFigures:
        """Arrival to end."""
        return self._figures("e2e")

    @property
    def num_with_tpot(self) -> int:
        """Requests that ``tpot_ms`` is of."""
        return int(np.count_nonzero(~np.isnan(self._columns["tpot"])))

    def itl_ms(self) -> tuple[LatencyFigures, int]:
        """Time between two tokens of an answer, and the number of requests of which it is known."""
        return self._gaps.result()

    def goodput(self, slos: Sequence[SLO], itl: LatencyFigures, seconds: float | None) -> Goodput | None:
        """Whether the bounds hold, and the goodput, in a run that lasted ``seconds``."""
        columns = {name: np.array(column) for name, column in self._columns.items()}
        figures = {name: self._figures(name) for name in _COLUMNS} | {"itl": itl}
        return goodput_of(slos, columns, figures, seconds)

    def _figures(self, name: str) -> LatencyFigures:
        values = np.array(self._columns[name])
        return Series.of(values[~np.isnan(values)]).latency()


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
