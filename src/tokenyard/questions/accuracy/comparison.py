"""Predicted beside measured: one row per point, and the errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import asdict

from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.accuracy.measured_run import (
    ClosedLoop,
    RunComparison,
    Schedule,
    replayed_times,
    run_closed_loop,
)
from tokenyard.questions.accuracy.points import Point, kv_tokens
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.constants import Constants
from tokenyard.steptime.known_error import SentLoad

# ---------------------------------------------------------------------------------------------------------------------
# What is predicted for measured points: what `tokenyard run` replays, a closed loop on the deployment, with the
# calibrated step times and the front end that was fitted with them.

_MAX_SEQS = 1024
"""vLLM's default for a server on such GPUs."""
_SAMPLED = 512
"""Requests that vLLM measures the peak of sampling with, about."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted for one point; seconds."""

    point: Point
    ttft: float
    tpot: float
    e2e: float
    ttft_range: tuple[float, float]
    tpot_range: tuple[float, float]
    e2e_range: tuple[float, float]
    familiarity: str
    """Kinds of gaps between it and what was measured."""


class Schedules:
    """Schedules of closed loops, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[ClosedLoop, int], Schedule] = {}

    def of(self, loop: ClosedLoop, ranks: int) -> Schedule:
        made = self._made.get((loop, ranks))
        if made is None:
            made = self._made[loop, ranks] = run_closed_loop(loop, ranks)
        return made


def predict(
    points: Iterable[Point],
    *,
    profile: DecisionProfile = OLDEST,
    constants: Constants | None = None,
    on_point: Callable[[], None] = lambda: None,
) -> Iterator[Prediction]:
    """One prediction per point, in order; ``profile`` decides, ``constants`` are the shipped ones if not given."""
    for point in points:
        latency = CalibratedLatency(
            point.spec,
            point.gpu,
            parallel=point.parallel,
            kv_cache_dtype=point.recipe.kv_cache_dtype,
            version=point.version or None,
            capture_size=point.recipe.capture_size,
            piecewise=point.recipe.piecewise,
            prepared_ahead=point.recipe.async_scheduling,
            constants=constants,
        )
        waits, paces = replayed_times(loop_of(point, profile), point.parallel.data, latency, latency.front_end)
        ttft, tpot = float(waits.mean()), float(paces.mean())
        e2e, known = point.whole_answer(ttft, tpot), latency.known_error(load_sent(point))
        spans = known.ttft.around(ttft), known.tpot.around(tpot), known.e2e.around(e2e)
        yield Prediction(point, ttft, tpot, e2e, *spans, known.familiarity)
        on_point()


def load_sent(point: Point) -> SentLoad:
    """What was sent. Of a table's nominal lengths: those that it was asked to generate."""
    return SentLoad(users=point.users, input_tokens=point.input_tokens, output_tokens=point.output_tokens)


def loop_of(point: Point, profile: DecisionProfile = OLDEST) -> ClosedLoop:
    """The load of a point, and its engine's limits. Memory only counts where it might run out."""
    blocks, block_size = 1 << 20, 16
    per_request = point.input_tokens + point.output_tokens
    held = kv_tokens(
        point.spec,
        point.gpu,
        point.parallel,
        gpu_memory_utilization=point.recipe.gpu_memory_utilization,
        kv_cache_dtype=point.recipe.kv_cache_dtype,
        max_num_batched_tokens=point.recipe.max_num_batched_tokens,
        max_num_seqs=_SAMPLED,
    )
    if point.recipe.distinct_prompts or held < 1.1 * per_request * point.users / point.parallel.data:
        blocks = int(max(held, 1.5 * per_request)) // (10 * block_size) * 10
    return ClosedLoop(
        users=point.users,
        input_tokens=point.input_tokens,
        output_tokens=point.output_tokens,
        shortest=point.recipe.shortest,
        rounds=point.rounds,
        distinct_prompts=point.recipe.distinct_prompts,
        max_num_batched_tokens=point.recipe.max_num_batched_tokens,
        max_num_seqs=_MAX_SEQS,
        num_gpu_blocks=blocks,
        block_size=block_size,
        async_scheduling=point.recipe.async_scheduling,
        profile=profile,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Predicted beside measured: one row per point, and the errors over any set of rows.

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
    """Statistics of the absolute relative error over some rows."""

    median: float
    p90: float
    p99: float
    n: int
    covered: float
    """Share of rows whose range holds what was measured; 0 where none is stated."""


class AccuracyRow(msgspec.Struct, kw_only=True, frozen=True):
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
    """Percentiles of a run's requests: ``ttft``, ``tpot``, ``e2e`` -> p50, p90, p99."""
    of_requests: dict[str, Errors] = {}
    """The same -> errors of every request beside itself."""


class AccuracyReport(Printable, msgspec.Struct, kw_only=True, frozen=True):
    """Predictions beside what was measured."""

    printer = "tokenyard.questions.printing.accuracy:print_accuracy"

    source: str
    vllm_version: str
    """Version of vLLM whose decisions the replays took."""
    nearest_to: str | None
    """The version that was asked for, where its own decisions are not known."""
    tpot: Errors | None
    ttft: Errors | None
    e2e: Errors | None
    """Errors of whole answers; tokens a second of a closed loop are their inverse."""
    by: dict[str, dict[str, dict[str, Errors]]]
    """Grouping -> group -> quantity -> errors."""
    rows: list[AccuracyRow]
    not_compared: list[str]

    def summary(self) -> str:
        said = [
            f"{name} within {errors.median:.1%} (half), {errors.p90:.1%} (nine of ten)"
            for name, errors in (("TPOT", self.tpot), ("TTFT", self.ttft), ("E2E", self.e2e))
            if errors is not None
        ]
        return f"{len(self.rows):,} points; {', '.join(said)}"

    def as_table(self) -> RowTable:
        """One row per point and latency: what it is of; ``measured``, ``predicted``, ``low``, ``high`` in milliseconds,
        ``error`` (predicted over measured, less 1).
        """
        about = ("file", "name", "model", "gpu", "dtype", "version", "tensor_parallel_size", "load", "familiarity")
        return table_from(
            "points",
            [
                {each: getattr(row, each) for each in about}
                | {"latency": name, **asdict(quantity), "error": quantity.error}
                for row in self.rows
                for name, quantity in (("tpot", row.tpot), ("ttft", row.ttft), ("e2e", row.e2e))
                if quantity is not None
            ],
            numbers=("low", "high"),
        )


def row_of(file: str, prediction: Prediction) -> AccuracyRow:
    """The row of a point under closed-loop load."""
    point = prediction.point
    return AccuracyRow(
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
        e2e=_quantity(point.whole_answer(point.ttft, point.tpot), prediction.e2e, prediction.e2e_range),
    )


def row_of_run(file: str, comparison: RunComparison) -> AccuracyRow:
    """The row of a replayed run; a number of requests that arrived by the clock."""
    run, known = comparison.run, comparison.known
    ranges = {"tpot": known.tpot, "ttft": known.ttft, "e2e": known.e2e}
    both = {name: (comparison.measured[name], values) for name, values in comparison.predicted.items()}

    def quantity(name: str, measured: float, predicted: float) -> Quantity:
        return _quantity(measured, predicted, ranges[name].around(predicted))

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
    return AccuracyRow(
        file=file,
        name=run.name,
        model=run.spec.name,
        gpu=run.gpu.name,
        dtype=run.precision,
        version=run.version,
        tensor_parallel_size=run.parallel.tensor,
        data_parallel_size=run.parallel.data,
        enable_expert_parallel=run.parallel.expert,
        load=f"{len(run.arrived)} requests in {run.arrived.max():.0f} s{run.arrivals}",
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


def _load(row: AccuracyRow) -> str:
    if row.users is None:
        return "by the clock"
    if row.users < _FEW_USERS:
        return f"below {_FEW_USERS} users"
    return f"{_FEW_USERS} to {_MANY_USERS - 1} users" if row.users < _MANY_USERS else f"{_MANY_USERS} users and more"


GROUPINGS: dict[str, Callable[[AccuracyRow], str]] = {
    "model": lambda row: row.model,
    "gpu": lambda row: row.gpu,
    "dtype": lambda row: row.dtype,
    "load": _load,
    "familiarity": lambda row: row.familiarity,
}


def grouped(rows: Iterable[AccuracyRow], key: Callable[[AccuracyRow], str]) -> dict[str, list[AccuracyRow]]:
    """Rows by a key, keys in order."""
    found: dict[str, list[AccuracyRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return dict(sorted(found.items()))


def together(
    rows: list[AccuracyRow], not_compared: list[str], source: str, vllm_version: str, nearest_to: str | None
) -> AccuracyReport:
    """The whole comparison."""

    def both(some: Sequence[AccuracyRow]) -> dict[str, Errors]:
        columns = {name: [getattr(row, name) for row in some] for name in ("tpot", "ttft", "e2e")}
        found = {name: errors_of([each for each in own if each is not None]) for name, own in columns.items()}
        return {name: errors for name, errors in found.items() if errors is not None}

    overall = both(rows)
    return AccuracyReport(
        source=source,
        vllm_version=vllm_version,
        nearest_to=nearest_to,
        tpot=overall.get("tpot"),
        ttft=overall.get("ttft"),
        e2e=overall.get("e2e"),
        by={name: {group: both(some) for group, some in grouped(rows, key).items()} for name, key in GROUPINGS.items()},
        rows=rows,
        not_compared=not_compared,
    )
