"""Predicted beside measured: one row per point, and the errors over any set of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from tokenyard.sim.accuracy.measured_run import RunComparison
from tokenyard.sim.accuracy.predict import Prediction

__all__ = [
    "GROUPINGS",
    "AccuracyReport",
    "Errors",
    "Quantity",
    "Row",
    "errors_of",
    "grouped",
    "row_of",
    "row_of_run",
    "together",
]

_MS = 1e3
_FEW_USERS, _MANY_USERS = 16, 128
_PERCENTILES = (50, 90, 99)


class Quantity(msgspec.Struct, kw_only=True, frozen=True):
    """One quantity of one point, in milliseconds."""

    measured: float
    predicted: float
    low: float | None = None
    """Nine points of ten that are known as well as this one lie between this ..."""
    high: float | None = None
    """... and this."""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1

    @property
    def covered(self) -> bool:
        """Whether the range holds what was measured."""
        return self.low is not None and self.high is not None and self.low <= self.measured <= self.high


class Errors(msgspec.Struct, kw_only=True, frozen=True):
    """Of the absolute relative error over some rows."""

    median: float
    p90: float
    p99: float
    n: int
    covered: float
    """Share of rows whose range holds what was measured; 0 where none is stated."""


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """One point."""

    file: str
    name: str
    model: str
    gpu: str
    dtype: str
    version: str
    tensor_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool
    load: str
    """Users and lengths, as the tables show them."""
    users: int | None
    familiarity: str
    tpot: Quantity
    ttft: Quantity
    e2e: Quantity | None = None
    percentiles: dict[str, dict[str, Quantity]] = {}
    """Of a run's requests: ``ttft``, ``tpot``, ``e2e`` -> p50, p90, p99."""
    of_requests: dict[str, Errors] = {}
    """The same -> errors of every request beside itself."""


class AccuracyReport(msgspec.Struct, kw_only=True, frozen=True):
    """All that a comparison says."""

    source: str
    vllm_version: str
    """Whose decisions the replays took."""
    tpot: Errors | None
    ttft: Errors | None
    by: dict[str, dict[str, dict[str, Errors]]]
    """Grouping -> group -> quantity -> errors."""
    rows: list[Row]
    not_compared: list[str]


def row_of(file: str, prediction: Prediction) -> Row:
    """The row of a point under closed-loop load."""
    point = prediction.point
    return Row(
        file=file,
        name=point.name,
        model=point.model.rsplit("/", 1)[-1],
        gpu=point.gpu.name,
        dtype=point.precision,
        version=point.version,
        tensor_parallel_size=point.parallel.tensor,
        data_parallel_size=point.parallel.data,
        enable_expert_parallel=point.parallel.expert,
        load=f"{point.users} users, {point.input_tokens}+{point.output_tokens}",
        users=point.users,
        familiarity=prediction.familiarity,
        tpot=_quantity(point.tpot, prediction.tpot, prediction.tpot_range),
        ttft=_quantity(point.ttft, prediction.ttft, prediction.ttft_range),
    )


def row_of_run(file: str, comparison: RunComparison) -> Row:
    """The row of a replayed run; a number of requests that arrived by the clock."""
    run, known = comparison.run, comparison.known
    ranges = {"tpot": known.tpot, "ttft": known.ttft}
    both = {name: (comparison.measured[name], values) for name, values in comparison.predicted.items()}

    def quantity(name: str, measured: float, predicted: float) -> Quantity:
        return _quantity(measured, predicted, ranges[name].around(predicted) if name in ranges else None)

    made = {name: quantity(name, float(ours.mean()), float(theirs.mean())) for name, (ours, theirs) in both.items()}
    percentiles = {
        name: {
            f"p{share}": quantity(name, float(np.percentile(ours, share)), float(np.percentile(theirs, share)))
            for share in _PERCENTILES
        }
        for name, (ours, theirs) in both.items()
    }
    of_requests = {
        name: errors_of([quantity(name, *each) for each in zip(ours.tolist(), theirs.tolist(), strict=True) if each[0]])
        for name, (ours, theirs) in both.items()
    }
    return Row(
        file=file,
        name=run.name,
        model=run.spec.name,
        gpu=run.gpu.name,
        dtype=run.precision,
        version=run.version,
        tensor_parallel_size=run.parallel.tensor,
        data_parallel_size=run.parallel.data,
        enable_expert_parallel=run.parallel.expert,
        load=f"{len(run.arrived)} requests in {run.arrived.max():.0f} s",
        users=None,
        familiarity=known.familiarity,
        tpot=made["tpot"],
        ttft=made["ttft"],
        e2e=made["e2e"],
        percentiles=percentiles,
        of_requests={name: errors for name, errors in of_requests.items() if errors is not None},
    )


def _quantity(measured: float, predicted: float, span: tuple[float, float] | None) -> Quantity:
    low, high = (None, None) if span is None else (span[0] * _MS, span[1] * _MS)
    return Quantity(measured=measured * _MS, predicted=predicted * _MS, low=low, high=high)


def errors_of(quantities: Sequence[Quantity]) -> Errors | None:
    """Over some rows; None if there are none."""
    if not quantities:
        return None
    sizes = np.abs([each.error for each in quantities])
    return Errors(
        median=float(np.median(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        p99=float(np.quantile(sizes, 0.99)),
        n=len(sizes),
        covered=float(np.mean([each.covered for each in quantities])),
    )


def _load(row: Row) -> str:
    if row.users is None:
        return "by the clock"
    if row.users < _FEW_USERS:
        return f"below {_FEW_USERS} users"
    return f"{_FEW_USERS} to {_MANY_USERS - 1} users" if row.users < _MANY_USERS else f"{_MANY_USERS} users and more"


GROUPINGS: dict[str, Callable[[Row], str]] = {
    "model": lambda row: row.model,
    "gpu": lambda row: row.gpu,
    "dtype": lambda row: row.dtype,
    "load": _load,
    "familiarity": lambda row: row.familiarity,
}


def grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Rows by a key, keys in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return dict(sorted(found.items()))


def together(rows: list[Row], not_compared: list[str], source: str, vllm_version: str) -> AccuracyReport:
    """The whole comparison."""

    def both(some: Sequence[Row]) -> dict[str, Errors]:
        found = {"tpot": errors_of([row.tpot for row in some]), "ttft": errors_of([row.ttft for row in some])}
        return {name: errors for name, errors in found.items() if errors is not None}

    overall = both(rows)
    return AccuracyReport(
        source=source,
        vllm_version=vllm_version,
        tpot=overall.get("tpot"),
        ttft=overall.get("ttft"),
        by={name: {group: both(some) for group, some in grouped(rows, key).items()} for name, key in GROUPINGS.items()},
        rows=rows,
        not_compared=not_compared,
    )
