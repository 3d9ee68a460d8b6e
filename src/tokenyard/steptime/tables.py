"""Step times from measured kernel timings: interpolation in grids, over the columns of a table."""

from __future__ import annotations

import csv
import io
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError, FileError
from tokenyard.files import read_unpacked
from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.steptime.model import StepShape, StepWork, Transfer, TransferDirection, require_seconds

# ---------------------------------------------------------------------------------------------------------------------
# Columns of a CSV table of timings, plain or gzipped.

_LARGEST = 1e12
"""Beyond it a sum of times no longer resolves a step."""
_MOST_BYTES = 64 << 20
"""Unpacked; the largest tables that are known hold some ten megabytes."""


def find_table(folder: Path, name: str) -> Path | None:
    """``folder/name.csv`` or ``folder/name.csv.gz``, whichever exists."""
    for suffix in (".csv", ".csv.gz"):
        path = folder / (name + suffix)
        if path.is_file():
            return path
    return None


def read_columns(path: Path, *columns: str) -> list[tuple[str, ...]]:
    """The named columns of every row. Raises ConfigError naming file and line."""
    try:
        text = read_unpacked(path, _MOST_BYTES).decode("utf-8-sig")
    except FileError as error:
        raise ConfigError("latency", str(path), error.problem) from None
    except UnicodeDecodeError as error:
        raise ConfigError("latency", str(path), f"is not UTF-8 text: {error.reason}") from None
    header, *rows = _rows(path, text) or [[]]
    missing = [name for name in columns if name not in header]
    if missing:
        raise ConfigError("latency", str(path), f"has no column {missing[0]!r}")
    at = [header.index(name) for name in columns]
    if not rows:
        raise ConfigError("latency", str(path), "holds no rows")
    return [tuple([row[i] for i in at]) for row in rows]


def _rows(path: Path, text: str) -> list[list[str]]:
    """The header and the rows, all of its length; blank lines are none."""
    reader = csv.reader(io.StringIO(text))
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0]):
                fix = f"has {len(row)} columns, not {len(rows[0])}"
                raise ConfigError("latency", f"{path}:{reader.line_num}", fix)
            if row:
                rows.append(row)
    except csv.Error as error:
        raise ConfigError("latency", f"{path}:{reader.line_num}", f"is no CSV: {error}") from None
    return rows


def numbers(path: Path, row: tuple[str, ...], *, positive: bool = False) -> tuple[float, ...]:
    """All cells of a row as numbers that are not negative, or even above 0."""
    try:
        values = tuple(map(float, row))
    except ValueError:
        values = (-1.0,)
    if not all(0 <= value <= _LARGEST for value in values) or (positive and not all(values)):
        low = "above 0" if positive else "from 0"
        raise ConfigError("latency", f"{path}: {','.join(row)}", f"give numbers {low} to {_LARGEST:g}")
    return values


# ---------------------------------------------------------------------------------------------------------------------
# Interpolation in measured tables: curves over one axis, grids over several.
#
# Inside the table values are interpolated linearly; below its smallest point they are held; above its largest one
# they go on as straight as at the end (never below the last value).

_MOST_POINTS = 1 << 22
Floats = npt.NDArray[np.float64]


def through(points: Mapping[float, float]) -> Callable[[Floats], Floats]:
    """The curve through measured points: straight between them, beyond them as from half way on; 0 at 0."""
    xs = np.array(sorted(points), np.float64)
    ys = np.array([points[x] for x in sorted(points)], np.float64)
    half = int(np.searchsorted(xs, xs[-1] / 2))
    slope = max(0.0, float(ys[-1] - ys[half]) / max(1.0, float(xs[-1] - xs[half])))

    def function(x: Floats) -> Floats:
        inside = np.interp(x, xs, ys) + np.maximum(0.0, x - xs[-1]) * slope
        return np.where(x > 0, inside, 0.0)

    return function


class Curve:
    """A function of a whole number, tabulated up to a largest argument so that looking it up is one index."""

    __slots__ = ("_last", "_slope", "_values")

    def __init__(self, function: Callable[[Floats], Floats], largest: int) -> None:
        """Tabulate ``function`` (vectorised) at 0, 1, ... ``largest``; beyond, the last stretch goes on."""
        values = function(np.arange(largest + 1, dtype=np.float64))
        back = max(1, largest // 4)
        self._slope = max(0.0, float(values[-1] - values[-1 - back]) / back)
        self._values: list[float] = values.tolist()
        self._last = largest

    def __call__(self, x: int) -> float:
        if x <= self._last:
            return self._values[x]
        return self._values[-1] + (x - self._last) * self._slope


class ValueGrid:
    """Values over the product of several axes; looked up without arrays, which are slow for one point."""

    __slots__ = ("_axes", "_corners", "_flat", "_strides")

    def __init__(self, axes: Sequence[Sequence[float]], values: Floats) -> None:
        """``values`` has one dimension per axis; an axis of one point is constant."""
        assert values.shape == tuple(map(len, axes))
        self._axes: list[list[float]] = []
        for i, axis in enumerate(axes):
            points = [float(x) for x in axis]
            if len(points) == 1:
                values = np.repeat(values, 2, axis=i)
                points.append(points[0] + 1.0)
            self._axes.append(points)
        self._flat: list[float] = values.ravel().tolist()
        sizes = values.shape
        self._strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self._corners = [sum(bits) for bits in itertools.product(*((0, stride) for stride in self._strides))]

    @classmethod
    def from_points(cls, points: Mapping[tuple[float, ...], float]) -> ValueGrid:
        """The largest complete grid in scattered points.

        Measured tables are often two lattices laid over each other. Axis values are given up, the one with most
        holes first, until no hole is left.
        """
        dims = len(next(iter(points)))
        axes = [sorted({point[i] for point in points}) for i in range(dims)]
        index = [{x: j for j, x in enumerate(axis)} for axis in axes]
        if math.prod(map(len, axes)) > _MOST_POINTS:
            sizes = " x ".join(str(len(axis)) for axis in axes)
            raise ConfigError("latency", f"{len(points)} points", f"they spread over {sizes} places: measure on a grid")
        values = np.full([len(axis) for axis in axes], np.nan)
        for point, value in points.items():
            values[tuple(index[i][x] for i, x in enumerate(point))] = value
        while np.isnan(values).any():
            axis, at = _worst(np.isnan(values))
            values = np.delete(values, at, axis)
            del axes[axis][at]
        return cls(axes, values)

    @property
    def axes(self) -> list[list[float]]:
        """The points kept on every axis."""
        return [list(axis) for axis in self._axes]

    def __call__(self, *at: float) -> float:
        base = 0
        shares = []
        for axis, stride, x in zip(self._axes, self._strides, at, strict=True):
            i = min(max(bisect_right(axis, x) - 1, 0), len(axis) - 2)
            base += i * stride
            shares.append(max(0.0, (x - axis[i]) / (axis[i + 1] - axis[i])))
        flat = self._flat
        cell = [flat[base + corner] for corner in self._corners]
        for share in shares:
            half = len(cell) // 2
            cell = [low + (high - low) * share for low, high in zip(cell[:half], cell[half:], strict=True)]
        return cell[0]


def _worst(holes: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """(axis, position) of the axis value with the largest share of holes."""
    best, where = -1.0, (0, 0)
    for axis in range(holes.ndim):
        share = holes.mean(axis=tuple(i for i in range(holes.ndim) if i != axis))
        at = int(share.argmax())
        if holes.shape[axis] > 1 and share[at] > best:
            best, where = float(share[at]), (axis, at)
    return where


# ---------------------------------------------------------------------------------------------------------------------
# Estimates that the roofline needs everywhere, and measured tables where they have gaps.

LATENCY = 8e-6
"""Seconds of an all-reduce however small: launch, flags, skew between the GPUs."""
LINK_EFFICIENCY = 0.35
"""Share of the link's bandwidth that messages of some ten megabytes reach."""


def all_reduce_seconds(num_bytes: float, world: int, link_bandwidth: float) -> float:
    """Each GPU sends and receives ``2 (world - 1) / world`` of the message over its link."""
    return LATENCY + 2.0 * (world - 1) / world * num_bytes / (link_bandwidth * LINK_EFFICIENCY)


def elementwise_bytes(model: ModelSpec, world: int) -> int:
    """Memory traffic per token and layer of everything between the matrix products.

    The activation reads two MLP widths and writes one; norms, residuals and rotary embedding come to four hidden
    states beyond what the caches catch.
    """
    width = model.intermediate_size
    if model.num_experts:
        width = model.num_experts_per_tok * model.moe_intermediate_size + model.shared_intermediate_size
    return (3 * width // world + 4 * model.hidden_size) * max(2, model.dtype_bytes)


# ---------------------------------------------------------------------------------------------------------------------
# Step times from measured kernel timings.
#
# A step is the sum of its kernels: everything that depends on the number of tokens, everything that depends on the
# number of sampled sequences, and attention per layer, which depends on four numbers: the prefill chunk, the context
# before it, the number of decodes and their mean context. A step with several prefills is looked up as the one
# prefill that has as many tokens and as many (query, key) pairs.


class AttentionTable(Protocol):
    """Attention of one layer."""

    def seconds(self, chunk: float, before: float, decodes: int, context: float) -> float:
        """A prefill of ``chunk`` tokens after ``before`` cached ones, and ``decodes`` with a mean ``context``."""


class JointAttention:
    """Prefill and decode measured together, as one kernel call runs them.

    A chunk beyond the table costs what consecutive smaller ones cost: the same pairs.
    """

    __slots__ = ("_decode", "_largest_chunk", "_mixed", "_prefill")

    def __init__(self, *, prefill: ValueGrid, decode: ValueGrid, mixed: ValueGrid) -> None:
        """Axes: (chunk, before), (decodes, context), and all four."""
        self._prefill = prefill
        self._decode = decode
        self._mixed = mixed
        self._largest_chunk = min(prefill.axes[0][-1], mixed.axes[0][-1])

    def seconds(self, chunk: float, before: float, decodes: int, context: float) -> float:
        if not chunk:
            return self._decode(decodes, context)
        pieces = math.ceil(chunk / self._largest_chunk)
        size = chunk / pieces
        seconds = sum(self._prefill(size, before + i * size) for i in range(1, pieces))
        if decodes:
            return seconds + self._mixed(size, before, decodes, context)
        return seconds + self._prefill(size, before)


class SeparateAttention:
    """Prefill and decode measured apart; a mixed step costs their sum.

    Prefill is known without cached context only: a chunk behind a context costs the whole sequence less the context
    (their causal triangles).
    """

    __slots__ = ("_decode", "_per_token")

    def __init__(self, *, prefill_per_token: ValueGrid, decode: ValueGrid) -> None:
        """``prefill_per_token``: seconds per token over sequence length; ``decode`` axes: (decodes, context)."""
        self._per_token = prefill_per_token
        self._decode = decode

    def seconds(self, chunk: float, before: float, decodes: int, context: float) -> float:
        seconds = self._decode(decodes, context) if decodes else 0.0
        if chunk:
            whole = before + chunk
            seconds += whole * self._per_token(whole) - (before * self._per_token(before) if before else 0.0)
        return seconds


class TableLatency:
    """Step times by adding up measured kernels."""

    def __init__(
        self,
        *,
        per_token: Curve,
        per_sequence: Curve,
        attention: AttentionTable,
        num_layers: int,
        step_overhead: float,
        host_seconds: float = 0.0,
        gpu: GPU | None = None,
    ) -> None:
        """``per_token`` and ``per_sequence``: seconds of the whole model over tokens and sampled sequences.

        ``step_overhead``: seconds per step that no kernel accounts for; ``host_seconds`` of them are the host's, and
        pass while another step runs. ``gpu`` gives the PCIe link.
        """
        require_seconds("host_seconds", host_seconds)
        require_seconds("step_overhead", step_overhead)
        self._per_token = per_token
        self._per_sequence = per_sequence
        self._attention = attention
        self._num_layers = num_layers
        self._step_overhead = step_overhead
        self.host_seconds = host_seconds
        self._transfer = Transfer.of(gpu) if gpu else Transfer()

    def step_seconds(self, shape: StepShape) -> float:
        work = StepWork.of(shape)
        chunk, before = equivalent_prefill(work) if work.num_prefills else (0.0, 0.0)
        context = work.decode_context / work.num_decodes if work.num_decodes else 0.0
        attention = self._attention.seconds(chunk, before, work.num_decodes, context)
        return (
            self._step_overhead
            + self._per_token(work.num_tokens)
            + self._per_sequence(work.num_sampled)
            + self._num_layers * attention
        )

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self._transfer.seconds(num_bytes, direction)


def equivalent_prefill(work: StepWork) -> tuple[float, float]:
    """(chunk, context before it) of the one prefill that stands for all of a step's.

    As many tokens and pairs; where several short prompts have fewer pairs than one prompt of their tokens, the
    prompt with as many pairs.
    """
    chunk = float(work.prefill_tokens)
    before = work.prefill_pairs / chunk - (chunk + 1) / 2
    if before >= 0:
        return chunk, before
    return (math.sqrt(1.0 + 8.0 * work.prefill_pairs) - 1.0) / 2, 0.0
