"""Tables of kernel timings that others publish: aiconfigurator's and LLMServingSim's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.steptime.tables import (
    Curve,
    Floats,
    JointAttention,
    SeparateAttention,
    TableLatency,
    ValueGrid,
    all_reduce_seconds,
    elementwise_bytes,
    find_table,
    numbers,
    read_columns,
    through,
)

# ---------------------------------------------------------------------------------------------------------------------
# Tables of aiconfigurator: matrix products, attention and all-reduce of one GPU, for any model's shape.
#
# ``aic_<gpu>*_gemm`` (gemm_dtype, m, n, k), ``..._context_attention`` and ``..._generation_attention`` (batch, heads,
# KV heads, head size, dtypes, step), ``..._custom_allreduce`` (num_gpus, message_size) and ``..._moe``; latencies in
# milliseconds. A model's matrix products are interpolated between measured sizes in the logarithm of n, k and
# latency. Kernels that the tables lack (norms, rotary embedding, activation) are estimated from their memory traffic.

AIC_STEP_OVERHEAD = 1.5e-3
SMALL_KERNELS = 8e-6
"""Seconds per layer of kernels that are too small to matter but for their launch."""
_MS = 1e-3
_MOST_TOKENS = 32_768
_MOST_SEQUENCES = 1024

Part = Callable[[Floats], Floats]


def is_aic_folder(folder: Path) -> bool:
    """Whether the folder holds such tables, for any GPU."""
    return any(folder.glob("aic_*_gemm.csv*"))


def load_aic(
    folder: Path,
    model: ModelSpec,
    gpu: GPU,
    *,
    tensor_parallel_size: int = 1,
    step_overhead: float = AIC_STEP_OVERHEAD,
) -> TableLatency:
    """The tables of ``gpu`` for a bfloat16 model. Raises ConfigError if they do not cover it."""
    model.check_tensor_parallel(tensor_parallel_size)
    tables = _Tables(folder, gpu)
    world = tensor_parallel_size
    products = _Products(tables.path("gemm"))
    layers = model.num_layers
    parts = [products.seconds(n, k, layers) for n, k in _layer_products(model, world)]
    parts.append(_small_kernels(model, gpu, world))
    if model.num_experts:
        parts.append(_experts(tables.path("moe"), model, world))
    if world > 1:
        parts.append(_all_reduce(tables.path("custom_allreduce"), model, world))
    head = products.seconds(-(-model.vocab_size // world), model.hidden_size, 1)
    return TableLatency(
        per_token=Curve(lambda x: np.sum([each(x) for each in parts], axis=0), _MOST_TOKENS),
        per_sequence=Curve(head, _MOST_SEQUENCES),
        attention=_attention(tables, model, world),
        num_layers=layers,
        step_overhead=step_overhead,
        host_seconds=step_overhead,
        gpu=gpu,
    )


def _layer_products(model: ModelSpec, world: int) -> list[tuple[int, int]]:
    """(n, k) of a layer's matrix products on one GPU: columns out, columns in."""
    hidden, size = model.hidden_size, model.head_size
    kv_heads = max(1, model.num_kv_heads // world)
    heads = model.num_heads // world
    shapes = [((heads + 2 * kv_heads) * size, hidden), (hidden, heads * size)]
    width = model.shared_intermediate_size if model.num_experts else model.intermediate_size
    if width:
        shapes += [(2 * width // world, hidden), (hidden, width // world)]
    return shapes


class _Tables:
    def __init__(self, folder: Path, gpu: GPU) -> None:
        self._folder = folder
        self._gpu = gpu

    def path(self, kind: str) -> Path:
        found = sorted(self._folder.glob(f"aic_{self._gpu.name.split('-')[0]}_*_{kind}.csv*"))
        if not found:
            raise ConfigError("latency", str(self._folder), f"holds no {kind} table of {self._gpu.name}")
        return found[-1]


class _Products:
    """Matrix products of every measured size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        points: dict[float, dict[tuple[float, ...], float]] = defaultdict(dict)
        for dtype, *row in read_columns(path, "gemm_dtype", "m", "n", "k", "latency"):
            if dtype == "bfloat16":
                m, n, k, latency = numbers(path, tuple(row), positive=True)
                points[m][math.log(n), math.log(k)] = math.log(latency * _MS)
        if not points:
            raise ConfigError("latency", str(path), "holds no bfloat16 rows")
        most = max(map(len, points.values()))
        self._grids = {m: ValueGrid.from_points(sizes) for m, sizes in points.items() if len(sizes) >= most // 2}

    def seconds(self, n: int, k: int, times: int) -> Part:
        """``[m, k] x [k, n]`` run ``times``, over m."""
        return through({m: times * math.exp(grid(math.log(n), math.log(k))) for m, grid in self._grids.items()})


def _small_kernels(model: ModelSpec, gpu: GPU, world: int) -> Part:
    """Norms, rotary embedding and activation: launches and memory traffic."""
    per_token = elementwise_bytes(model, world) / gpu.memory_bandwidth
    return lambda tokens: model.num_layers * (SMALL_KERNELS + tokens * per_token)


def _all_reduce(path: Path, model: ModelSpec, world: int) -> Part:
    """Two per layer, from the CUDA-graph rows where there are any."""
    rows: dict[str, dict[float, float]] = defaultdict(dict)
    for backend, *row in read_columns(path, "backend", "num_gpus", "message_size", "latency"):
        gpus, size, latency = numbers(path, tuple(row))
        if gpus == world:
            rows[backend][size] = latency * _MS * 2 * model.num_layers
    points = rows.get("vllm_graph") or next(iter(rows.values()), None)
    if points is None:
        raise ConfigError("tensor_parallel_size", world, f"{path} holds no all-reduce of so many GPUs")
    curve = through(points)
    return lambda tokens: curve(tokens * (model.hidden_size * 2))


def _experts(path: Path, model: ModelSpec, world: int) -> Part:
    """The experts of all layers, with the most even load that was measured."""
    wanted = (model.hidden_size, model.moe_intermediate_size, model.num_experts_per_tok, model.num_experts, world, 1)
    columns = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    points: dict[str, dict[float, float]] = defaultdict(dict)
    rows = read_columns(path, "moe_dtype", "distribution", *columns, "num_tokens", "latency")
    for dtype, distribution, *row in rows:
        *shape, tokens, latency = numbers(path, tuple(row))
        if dtype == "bfloat16" and tuple(shape) == wanted:
            points[distribution][tokens] = latency * _MS * model.num_layers
    if not points:
        raise ConfigError("model", model.name, f"{path} holds no bfloat16 experts of this shape")
    return through(points[min(points)])


def _attention(tables: _Tables, model: ModelSpec, world: int) -> SeparateAttention:
    heads, kv_heads = model.num_heads // world, max(1, model.num_kv_heads // world)
    path = tables.path("context_attention")
    prefill = _rows(path, heads, kv_heads, model.head_size, ("batch_size", "isl"))
    decode = _rows(tables.path("generation_attention"), heads, kv_heads, model.head_size, ("batch_size", "step"))
    per_token: dict[tuple[float, ...], float] = {
        (length,): seconds / length for (batch, length), seconds in prefill.items() if batch == 1 and length > 0
    }
    if not per_token:
        raise ConfigError("latency", str(path), "holds no row of batch_size 1 with an isl above 0")
    return SeparateAttention(
        prefill_per_token=ValueGrid.from_points(per_token),
        decode=ValueGrid.from_points({(batch, step + 1): seconds for (batch, step), seconds in decode.items()}),
    )


def _rows(
    path: Path, heads: int, kv_heads: int, head_size: int, axes: tuple[str, str]
) -> dict[tuple[float, ...], float]:
    """Seconds by ``axes`` of the rows for one attention shape: bfloat16, no sliding window."""
    columns = ("num_heads", "num_key_value_heads", "head_dim", "window_size", *axes, "latency")
    found: dict[tuple[float, ...], float] = {}
    for attention, cache, *row in read_columns(path, "attn_dtype", "kv_cache_dtype", *columns):
        if attention != "bfloat16" or cache != "bfloat16":
            continue
        *shape, first, second, latency = numbers(path, tuple(row))
        if shape == [heads, kv_heads, head_size, 0]:
            found[first, second] = latency * _MS
    if not found:
        raise ConfigError("latency", str(path), f"holds no rows for {heads} heads, {kv_heads} KV heads of {head_size}")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Tables of LLMServingSim's profiler: one folder per GPU and model.
#
# ``tp<N>_attention`` (prefill_chunk, kv_prefill, n_decode, kv_decode), ``tp<N>_dense`` (layer, tokens),
# ``tp<N>_per_sequence`` (layer, sequences) and, for a mixture of experts, ``tp<N>_moe`` (tokens, activated_experts);
# all times in microseconds, of one layer. They were taken in eager mode, kernel by kernel; what a step costs besides
# (input preparation, sampling on the host, gaps between kernels) is ``step_overhead``.

LSS_STEP_OVERHEAD = 0.5e-3
"""Read off runs with async scheduling, so that it is what two steps in flight do not hide."""
_US = 1e-6
_LSS_MOST_TOKENS = 16_384
_TIMES_PER_LAYER = {"embedding": 0, "final_layernorm": 0, "layernorm": 2}
"""Runs of a kernel per layer where it is not once; 0: once per step."""


def is_lss_folder(folder: Path) -> bool:
    """Whether the folder holds such tables, for any tensor-parallel size."""
    return any(folder.glob("tp*_attention.csv*"))


def load_lss(
    folder: Path,
    model: ModelSpec,
    *,
    gpu: GPU | None = None,
    tensor_parallel_size: int = 1,
    step_overhead: float = LSS_STEP_OVERHEAD,
) -> TableLatency:
    """The tables of one folder for a model of ``model.num_layers`` layers.

    They know no all-reduce: with more than one GPU ``gpu`` must name the link. Raises ConfigError if a table is
    missing or damaged.
    """
    tables = _LssTables(folder, tensor_parallel_size)
    parts = _dense(tables.path("dense"), model.num_layers)
    if model.num_experts:
        parts.append(_lss_experts(tables.path("moe"), model))
    if tensor_parallel_size > 1:
        if gpu is None:
            raise ConfigError("gpu", None, "give --gpu: the tables hold no all-reduce timings")
        parts.append(_lss_all_reduce(model, gpu, tensor_parallel_size))
    return TableLatency(
        per_token=Curve(_total(parts), _LSS_MOST_TOKENS),
        per_sequence=_per_sequence(tables.path("per_sequence")),
        attention=_lss_attention(tables.path("attention")),
        num_layers=model.num_layers,
        step_overhead=step_overhead,
        gpu=gpu,
    )


class _LssTables:
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


def _lss_experts(path: Path, model: ModelSpec) -> Part:
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


def _lss_all_reduce(model: ModelSpec, gpu: GPU, world: int) -> Part:
    per_token = model.hidden_size * max(model.dtype_bytes, 2)
    runs = 2 * model.num_layers

    def function(tokens: Floats) -> Floats:
        return np.array([runs * all_reduce_seconds(float(n) * per_token, world, gpu.link_bandwidth) for n in tokens])

    return function


def _lss_attention(path: Path) -> JointAttention:
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
        prefill=ValueGrid.from_points(prefill), decode=ValueGrid.from_points(decode), mixed=ValueGrid.from_points(mixed)
    )


def _total(parts: list[Part]) -> Part:
    return lambda x: np.sum([each(x) for each in parts], axis=0)
