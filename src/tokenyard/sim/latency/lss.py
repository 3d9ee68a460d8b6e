"""Tables of LLMServingSim's profiler: one folder per GPU and model.

``tp<N>_attention`` (prefill_chunk, kv_prefill, n_decode, kv_decode), ``tp<N>_dense`` (layer, tokens),
``tp<N>_per_sequence`` (layer, sequences) and, for a mixture of experts, ``tp<N>_moe`` (tokens, activated_experts);
all times in microseconds, of one layer. They were taken in eager mode, kernel by kernel; what a step costs besides
(input preparation, sampling on the host, gaps between kernels) is ``step_overhead``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.latency.csv_columns import find_table, numbers, read_columns
from tokenyard.sim.latency.estimates import all_reduce_seconds
from tokenyard.sim.latency.grid import Curve, Floats, Grid, through
from tokenyard.sim.latency.table import JointAttention, TableLatency

__all__ = ["is_lss_folder", "load_lss"]

STEP_OVERHEAD = 0.5e-3
"""Read off runs with async scheduling, so that it is what two steps in flight do not hide."""
_US = 1e-6
_MOST_TOKENS = 16_384
_MOST_SEQUENCES = 1024
_TIMES_PER_LAYER = {"embedding": 0, "final_layernorm": 0, "layernorm": 2}
"""Runs of a kernel per layer where it is not once; 0: once per step."""

Part = Callable[[Floats], Floats]
"""Seconds over tokens."""


def is_lss_folder(folder: Path) -> bool:
    """Whether the folder holds such tables, for any tensor-parallel size."""
    return any(folder.glob("tp*_attention.csv*"))


def load_lss(
    folder: Path,
    model: ModelSpec,
    *,
    gpu: GPU | None = None,
    tensor_parallel_size: int = 1,
    step_overhead: float = STEP_OVERHEAD,
) -> TableLatency:
    """The tables of one folder for a model of ``model.num_layers`` layers.

    They know no all-reduce: with more than one GPU ``gpu`` must name the link. Raises ConfigError if a table is
    missing or damaged.
    """
    tables = _Tables(folder, tensor_parallel_size)
    parts = _dense(tables.path("dense"), model.num_layers)
    if model.num_experts:
        parts.append(_experts(tables.path("moe"), model))
    if tensor_parallel_size > 1:
        if gpu is None:
            raise ConfigError("gpu", None, "give --gpu: the tables hold no all-reduce timings")
        parts.append(_all_reduce(model, gpu, tensor_parallel_size))
    return TableLatency(
        per_token=Curve(_total(parts), _MOST_TOKENS),
        per_sequence=_per_sequence(tables.path("per_sequence")),
        attention=_attention(tables.path("attention")),
        num_layers=model.num_layers,
        step_overhead=step_overhead,
        gpu=gpu,
    )


class _Tables:
    def __init__(self, folder: Path, world: int) -> None:
        self._folder = folder
        self._world = world

    def path(self, kind: str) -> Path:
        name = f"tp{self._world}_{kind}"
        found = find_table(self._folder, name)
        if found is None:
            raise ConfigError("latency", str(self._folder), f"holds no {name}.csv or {name}.csv.gz")
        return found


def _dense(path: Path, num_layers: int) -> list[Part]:
    """All kernels that depend on the number of tokens, each times its runs per step."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for layer, *row in read_columns(path, "layer", "tokens", "time_us"):
        tokens, micros = numbers(path, tuple(row))
        points[layer][tokens] = micros * _US * (_TIMES_PER_LAYER.get(layer, 1) * num_layers or 1)
    return [through(each) for each in points.values()]


def _per_sequence(path: Path) -> Curve:
    points: dict[str, dict[float, float]] = defaultdict(dict)
    for layer, *row in read_columns(path, "layer", "sequences", "time_us"):
        sequences, micros = numbers(path, tuple(row))
        points[layer][sequences] = micros * _US
    return Curve(_total([through(each) for each in points.values()]), _MOST_SEQUENCES)


def _experts(path: Path, model: ModelSpec) -> Part:
    """A layer's experts: of ``E`` experts, tokens that choose ``k`` each activate ``E (1 - (1 - k / E) ^ tokens)``."""
    rows = [numbers(path, row) for row in read_columns(path, "tokens", "activated_experts", "time_us")]
    experts, chosen = model.num_experts, model.num_experts_per_tok
    points: dict[float, float] = {}
    for tokens in sorted({row[0] for row in rows}):
        active = experts * (1.0 - (1.0 - chosen / experts) ** tokens)
        measured = sorted((row[1], row[2]) for row in rows if row[0] == tokens)
        micros = float(np.interp(active, [x for x, _ in measured], [y for _, y in measured]))
        points[tokens] = micros * _US * model.num_layers
    return through(points)


def _all_reduce(model: ModelSpec, gpu: GPU, world: int) -> Part:
    per_token = model.hidden_size * max(model.dtype_bytes, 2)
    runs = 2 * model.num_layers

    def function(tokens: Floats) -> Floats:
        return np.array([runs * all_reduce_seconds(float(n) * per_token, world, gpu.link_bandwidth) for n in tokens])

    return function


def _attention(path: Path) -> JointAttention:
    prefill: dict[tuple[float, ...], float] = {}
    decode: dict[tuple[float, ...], float] = {}
    mixed: dict[tuple[float, ...], float] = {}
    for row in read_columns(path, "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"):
        chunk, before, decodes, context, micros = numbers(path, row)
        if not chunk and not decodes:
            fix = "give prefill_chunk or n_decode above 0"
            raise ConfigError("latency", f"{path}: {','.join(row)}", fix)
        if not decodes:
            prefill[chunk, before] = micros * _US
        elif not chunk:
            decode[decodes, context] = micros * _US
        else:
            mixed[chunk, before, decodes, context] = micros * _US
    for name, points in (("prefill", prefill), ("decode", decode), ("mixed", mixed)):
        if not points:
            raise ConfigError("latency", str(path), f"holds no {name} rows")
    return JointAttention(
        prefill=Grid.from_points(prefill), decode=Grid.from_points(decode), mixed=Grid.from_points(mixed)
    )


def _total(parts: list[Part]) -> Part:
    return lambda x: np.sum([each(x) for each in parts], axis=0)
