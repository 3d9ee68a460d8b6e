"""Figures per class of requests: priority, tenant, adapter, prompt length, or whatever column the rows have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.params import user_name
from tokenyard.errors import ConfigError
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.population import LATENCIES, Outcomes, population_of
from tokenyard.explain.slo import OF_NO_REQUEST, SLO, SLO_FIGURES, Bounded, Goodput, all_met, goodput_of, read_slos
from tokenyard.explain.table import Column, Printable, RowTable, column_of, table_from
from tokenyard.vocabulary import is_in_flight

MOST_VALUES = 16
"""Different numbers that are classes of their own; more of them are put into ranges."""
_MOST_CLASSES = 1000
BOUNDS = (0, 256, 1024, 4096, 16384, 65536, 262144)
"""Where ranges of numbers begin."""
_NONE = "(none)"
USER = "user"
"""The class that jobs' ids say, where no column does."""

_FIGURE_ENDS = re.compile("[_-]")
"""Behind the figure in ``ttft_p90`` and ``ttft-p90``."""

ClassSLOs = Mapping[str, Sequence[SLO]]
"""Class -> its bounds; those of the empty name hold for every class that has none of its own."""


class ClassFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One class. Times in milliseconds, as in the report."""

    name: str
    requests: int
    """Requests that arrived, whether they ended or not."""
    finished: int
    outcomes: Outcomes
    """What became of them."""
    prompt_tokens: int
    cached_share: float
    """Share of its prompt tokens that were found in the prefix cache."""
    output_tokens: int
    preemptions: int
    queue_ms: LatencyFigures
    ttft_ms: LatencyFigures
    tpot_ms: LatencyFigures
    e2e_ms: LatencyFigures
    waited_s: float
    """Request-seconds that its requests got no tokens for a reason of the scheduler's."""
    waited_for: str | None
    """The reason that most of it was for."""
    goodput: Goodput | None = None
    """Whether its bounds hold, and its goodput; None for a class without bounds."""


class Classes(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """A run, class by class, the class with the most requests first."""

    printer = "tokenyard.explain.render.report:print_classes"

    by: str
    classes: list[ClassFigures]

    def summary(self) -> str:
        return f"{len(self.classes)} by {self.by}: {', '.join(each.name for each in self.classes[:8])}"

    def __getitem__(self, name: str) -> ClassFigures:
        """ConfigError for a class that there is not."""
        for each in self.classes:
            if each.name == name:
                return each
        raise ConfigError("class", name, f"by {self.by} there are: {', '.join(each.name for each in self.classes)}")

    def goodput(self) -> Goodput | None:
        """The goodput of all classes that have bounds, added up; None if none has any."""
        judged = [(each.name, each.goodput) for each in self.classes if each.goodput is not None]
        if not judged:
            return None
        objectives = [
            msgspec.structs.replace(objective, name=f"{name}:{objective.name}")
            for name, goodput in judged
            for objective in goodput.objectives
        ]
        counted = [goodput for _, goodput in judged if goodput.requests is not None]
        requests, arrived = (sum(getattr(each, name) or 0 for each in counted) for name in ("requests", "arrived"))
        if not arrived:
            return Goodput(met=all_met(objectives), objectives=objectives)
        return Goodput(
            requests=requests,
            open=sum(each.open or 0 for each in counted),
            arrived=arrived,
            share=requests / arrived,
            requests_per_s=sum(each.requests_per_s or 0.0 for each in counted),
            met=all_met(objectives),
            objectives=objectives,
        )

    def fairness(self) -> float | None:
        """Jain's index over classes of the end-to-end time per output token: 1 if all are served alike, 1/n if one is
        served and the others hardly are; None where fewer than two classes have such a time.
        """
        per_token = [
            each.output_tokens / (each.e2e_ms.mean * each.finished)
            for each in self.classes
            if each.e2e_ms.mean and each.finished and each.output_tokens
        ]
        if len(per_token) < 2:
            return None
        return sum(per_token) ** 2 / (len(per_token) * sum(value**2 for value in per_token))

    def as_table(self) -> RowTable:
        """One row per class: ``class``, counts, ``ttft_ms_p50`` and so on, ``waited_s``, ``goodput_share``, ``met``."""
        rows = []
        for each in self.classes:
            row: dict[str, Any] = {"class": each.name}
            row |= {name: getattr(each, name) for name in ("requests", "finished", "prompt_tokens", "cached_share")}
            row |= {name: getattr(each, name) for name in ("output_tokens", "preemptions", "waited_s", "waited_for")}
            for name in LATENCIES:
                figures: LatencyFigures = getattr(each, f"{name}_ms")
                row |= {f"{name}_ms_{what}": getattr(figures, what) for what in ("mean", "p50", "p90", "p95", "p99")}
            row["goodput_share"] = None if each.goodput is None else each.goodput.share
            row["met"] = None if each.goodput is None or each.goodput.met is None else str(each.goodput.met).lower()
            rows.append(row)
        return table_from("classes", rows)


def slos_by_class(given: Iterable[Iterable[str]]) -> dict[str, tuple[SLO, ...]]:
    """Bounds of ``--slo`` by class: ``interactive:ttft_p95=1s`` is of one, ``tpot:40`` of all (the empty name).

    Raises ConfigError for a bound that is none.
    """
    texts: dict[str, list[str]] = {}
    for part in (part for each in given for text in each for part in text.split(",")):
        name, colon, bound = part.strip().partition(":")
        is_class = bool(colon) and (_FIGURE_ENDS.split(name.lower())[0] not in (*SLO_FIGURES, "e2el"))
        texts.setdefault(name if is_class else "", []).append(bound if is_class else part)
    slos = {
        name: tuple(msgspec.structs.replace(slo, of=name) for slo in read_slos([parts]))
        for name, parts in texts.items()
    }
    if set(slos) - {""}:
        require_of_requests(slos)
    return slos


def require_of_requests(slos: ClassSLOs) -> None:
    """Raise ConfigError for a bound on what classes have not: the time between two tokens."""
    for slo in (slo for each in slos.values() for slo in each):
        if slo.figure in OF_NO_REQUEST:
            raise ConfigError("slo", str(slo), "a class is of requests, which have no such time: bound tpot, or e2e")


def classes_of(
    requests: RowTable,
    waits: RowTable,
    by: str,
    *,
    slos: ClassSLOs | None = None,
    seconds: float | None = None,
    partial: bool = False,
) -> Classes:
    """The rows of a replay, class by class.

    ``by`` is a column of ``requests``, or ``user``, which begins a job's id where there is no such column; of numbers
    with many different values, ranges are the classes. ``slos``: bounds by class. ``seconds``: of the run, for goodput
    per second. ``partial``: these are a part of the requests, which may lack a bound's class. Raises ConfigError for a
    column, or (not of a part) a bound's class, that there is not.
    """
    slos = slos or {}
    require_of_requests(slos)
    labels = class_labels(_column(requests, by), by)
    names, counts = np.unique(labels, return_counts=True)
    if not partial:
        require_classes(slos, names.tolist(), by)
    if len(names) > _MOST_CLASSES:
        raise ConfigError("by", by, f"{len(names):,} classes: choose a column with at most {_MOST_CLASSES:,} values")
    class_of = dict(zip(requests["request_id"].tolist(), labels.tolist(), strict=True))
    lost: dict[str, dict[str, float]] = {name: {} for name in names.tolist()}
    for request_id, reason, waited in zip(waits["request_id"], waits["reason"], waits["seconds"], strict=True):
        of_class = lost.get(class_of.get(request_id, ""))
        if of_class is not None:
            of_class[str(reason)] = of_class.get(str(reason), 0.0) + float(waited)
    order = sorted(zip(names.tolist(), counts.tolist(), strict=True), key=lambda each: (-each[1], each[0]))
    return Classes(
        by=by,
        classes=[
            _figures(name, requests, labels == name, lost[name], bounds_of(name, slos), seconds) for name, _ in order
        ],
    )


def _column(requests: RowTable, by: str) -> Column:
    if by == USER and by not in requests:
        return column_of([user_name(each) or None for each in requests["job_id"].tolist()])
    if by not in requests:
        raise ConfigError("by", by, f"requests have no such column: {', '.join(requests.columns)}")
    return requests[by]


def require_classes(slos: ClassSLOs, names: Sequence[str], by: str) -> None:
    """Raise ConfigError for a bound's class that there is not."""
    unknown = [name for name in slos if name and name not in names]
    if unknown:
        raise ConfigError("slo", unknown[0], f"no request is of this class; by {by} there are: {', '.join(names)}")


def bounds_of(name: str, slos: ClassSLOs) -> list[SLO]:
    """The bounds of a class: its own, or else those that name no class."""
    return [msgspec.structs.replace(slo, of="") for slo in slos.get(name, slos.get("", ()))]


def bounded_classes(classes: Classes, slos: ClassSLOs) -> list[Bounded]:
    """What the bounds of each class are held against."""
    return [
        Bounded(bounds_of(each.name, slos), {name: getattr(each, f"{name}_ms") for name in LATENCIES}, each.name)
        for each in classes.classes
    ]


def _figures(
    name: str,
    requests: RowTable,
    mine: npt.NDArray[np.bool_],
    lost: Mapping[str, float],
    slos: Sequence[SLO],
    seconds: float | None,
) -> ClassFigures:
    moments = {each: requests[each][mine] for each in ("arrival_s", "first_scheduled_s", "first_token_s", "until_s")}
    output, most = (requests[each][mine] for each in ("output_tokens", "max_tokens"))
    people = population_of(
        moments,
        output=output,
        max_tokens=most,
        reasons=requests["finish_reason"][mine].tolist(),
        ids=requests["request_id"][mine].tolist(),
    )
    figures = {each: people.figures(each) for each in LATENCIES}
    lost = {reason: seconds for reason, seconds in lost.items() if not is_in_flight(reason)}
    prompt, cached = (int(requests[each][mine].sum()) for each in ("prompt_tokens", "cached_tokens"))
    return ClassFigures(
        name=name,
        requests=people.outcomes.arrived,
        finished=people.outcomes.arrived - people.outcomes.unfinished,
        outcomes=people.outcomes,
        prompt_tokens=prompt,
        cached_share=cached / prompt if prompt else 0.0,
        output_tokens=int(requests["output_tokens"][mine].sum()) - people.attempts.lost_tokens,
        preemptions=int(requests["preemptions"][mine].sum()),
        **{f"{each}_ms": value for each, value in figures.items()},
        waited_s=sum(lost.values()),
        waited_for=max(lost, key=lost.__getitem__) if lost else None,
        goodput=goodput_of(slos, people, figures, seconds),
    )


def class_labels(column: Column, by: str) -> npt.NDArray[Any]:
    """The class of each row, as text; numbers with many values by range."""
    if column.dtype.kind in "fiu":
        values = column[~np.isnan(column.astype(np.float64))]
        if len(np.unique(values)) > MOST_VALUES:
            return np.array([_range(float(value), by) for value in column], object).astype(str)
        return np.array([_NONE if isnan(value) else _written(value) for value in column.tolist()]).astype(str)
    return np.array([_NONE if value is None else str(value) for value in column.tolist()], object).astype(str)


def _written(number: float) -> str:
    """A number in all its digits, so that no two numbers are one class: 10000001, and not 1e+07."""
    return str(number).removesuffix(".0")


def _range(value: float, by: str) -> str:
    if isnan(value) or value < 0:
        return _NONE
    low = max(bound for bound in BOUNDS if bound <= value)
    high = next((bound for bound in BOUNDS if bound > value), None)
    return f"{by} {low:,} and more" if high is None else f"{by} {low:,} to {high - 1:,}"
