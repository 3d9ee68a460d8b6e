"""Measured points: files, bounds, result files of vllm bench serve, where the public ones are."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenyard.core.config import MAX_COUNT
from tokenyard.errors import ConfigError, FileError, TokenyardError, WorkloadError
from tokenyard.files import Bounds, bounded_lines, is_nested_deeper, read_unpacked
from tokenyard.memory.room import activation_bytes
from tokenyard.models.gpus import GPU, named_gpu
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.deployments import Recipe, measured_model, prepares_ahead, recipe_of
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.formula import Parallelism, work_counts

# ---------------------------------------------------------------------------------------------------------------------
# Files of measurements, opened and bounded as every input is.

_MOST_BYTES = 256 << 20
"""Unpacked; results with the times of every token hold some hundred bytes per token."""


def json_object(path: Path) -> Mapping[str, Any]:
    """The JSON object that a file holds. Raises WorkloadError."""
    found = _decoded(_whole(path), path, 1)
    if not isinstance(found, dict):
        raise WorkloadError(str(path), 1, "is no JSON object")
    return found


def json_rows(path: Path) -> Iterator[tuple[int, object]]:
    """Numbers and values of the lines that are not blank. Raises WorkloadError."""
    try:
        for number, line in enumerate(bounded_lines(path), 1):
            if line.strip():
                yield number, _decoded(line, path, number)
    except FileError as error:
        raise _unreadable(path, error) from None


def table_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows of a CSV, plain or gzipped. Raises WorkloadError."""
    try:
        text = _whole(path).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        return list(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(str(path), 0, f"cannot be read: {error}") from None


def _whole(path: Path) -> bytes:
    try:
        return read_unpacked(path, _MOST_BYTES)
    except FileError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: FileError) -> WorkloadError:
    return WorkloadError(str(path), 0, error.problem)


def _decoded(data: bytes, path: Path, line: int) -> object:
    bounds = Bounds.from_env()
    if is_nested_deeper(data, bounds.nesting):
        problem = bounds.exceeded(path, "lists and objects nest deeper", "nesting").problem
        raise WorkloadError(str(path), line, problem)
    try:
        return json.loads(data)
    except ValueError as error:
        raise WorkloadError(str(path), line, f"is no JSON: {error}") from None


# ---------------------------------------------------------------------------------------------------------------------
# Where the points are that the shipped constants were fitted to: a public table, read where it is installed.

PACKAGE = "aiconfigurator-core"
"""Name of the package on PyPI, Apache-2.0; its repository is github.com/ai-dynamo/aiconfigurator."""
TABLE = "silicon_sample.csv"
HOW_TO_GET = (
    f"pip install {PACKAGE}    # has {TABLE} (github.com/ai-dynamo/aiconfigurator, Apache-2.0)",
    "tokenyard accuracy                 # finds it there; or name a copy: tokenyard accuracy FILE",
)
"""Commands that fetch the table, and compare with it."""


def installed_points() -> Path | None:
    """The table, of the package in this environment; None where it is not installed, or has none."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        found = sorted(path for name in (TABLE, f"{TABLE}.gz") for path in Path(folder).rglob(name))
        if found:
            return found[0]
    return None


# ---------------------------------------------------------------------------------------------------------------------
# How many tokens' KV an engine had room for, where it was not logged.

RUNTIME_BYTES = 1_400_000_000
"""GPU memory taken beyond weights, activations and KV cache: graphs, communication buffers. Met by the measured points
that ran out of memory for KV."""


def kv_tokens(
    spec: ModelSpec,
    gpu: GPU,
    parallel: Parallelism,
    *,
    gpu_memory_utilization: float,
    kv_cache_dtype: str | None,
    max_num_batched_tokens: int,
    max_num_seqs: int,
) -> float:
    """Tokens that one data-parallel rank has room for, by its layers without a window. Raises ConfigError if none."""
    spread = parallel.expert or parallel.data > 1
    weights = spec.weight_bytes(
        parallel.tensor,
        expert_parallel_size=parallel.tensor * parallel.data if spread else 1,
        pipeline_parallel_size=parallel.pipeline,
    )
    activations = activation_bytes(
        spec,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel_size=parallel.tensor,
    )
    counted = work_counts(spec, parallel, kv_cache_dtype)
    per_token = sum(each.kv_bytes * each.layers for each in counted.attention if not each.window)
    free = gpu.memory_bytes * gpu_memory_utilization - RUNTIME_BYTES - weights - activations
    if free <= 0:
        raise ConfigError("gpu", gpu.name, f"{spec.name} does not fit {parallel.num_gpus} of them")
    return free / max(per_token, 1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Measured points: one load on one deployment, with the mean TTFT and TPOT; read from a table (.csv, .csv.gz).

COLUMNS = (
    "model_path",
    "system",
    "precision",
    "isl",
    "osl",
    "batch_size",
    "tp_size",
    "moe_tp_size",
    "moe_ep_size",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
)
"""Columns that a table must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured load on one deployment."""

    name: str
    model: str
    """The model as the record names it."""
    precision: str
    spec: ModelSpec
    gpu: GPU
    version: str
    """vLLM's version; may be empty."""
    parallel: Parallelism
    recipe: Recipe
    input_tokens: int
    output_tokens: int
    users: int
    """Requests in flight, over all data-parallel ranks."""
    rounds: int = 10
    """Requests per user."""
    ttft: float
    """Mean, in seconds."""
    tpot: float
    """Mean, in seconds."""

    def whole_answer(self, ttft: Any, tpot: Any) -> Any:
        """Seconds of a whole answer with such times."""
        return ttft + max(self.output_tokens * (1 + self.recipe.shortest) / 2 - 1, 0.0) * tpot


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that is not compared, and why."""

    line: int
    problem: str


def read_points(path: Path) -> tuple[list[Point], list[Unread]]:
    """Points of vLLM on one kind of engine; rows of other engines are ignored silently, others with their reason.

    Raises WorkloadError if the file cannot be read or lacks a column.
    """
    points: list[Point] = []
    unread: list[Unread] = []
    for line, row in _rows(path):
        if row.get("backend", "vllm") != "vllm":
            continue
        try:
            points.append(_point(row))
        except (TokenyardError, ValueError) as error:
            unread.append(Unread(line, str(error)))
    return points, unread


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    columns, rows = table_rows(path)
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        raise WorkloadError(str(path), 1, f"is no table of measured points: it lacks {', '.join(missing)}")
    yield from enumerate(rows, start=2)


def _point(row: Mapping[str, str]) -> Point:
    if row.get("mode", "agg") != "agg":
        raise ValueError(f"mode {row['mode']}: prefill and decode on engines of their own are not compared")
    source = row.get("silicon_data_source") or ""
    ttft, tpot = (_positive(row, f"silicon_{name}_ms") / 1e3 for name in ("ttft", "tpot"))
    gpu = row["system"].split("_")[0]
    measured = re.search(r"measured=(\d{4}-\d\d-\d\d)", source)
    input_tokens, version = _count(row, "isl"), row.get("backend_version") or ""
    recipe = recipe_of(
        row["model_path"], row["precision"], gpu, measured.group(1) if measured else "", version, input_tokens
    )
    return Point(
        name=row.get("id") or "",
        model=row["model_path"],
        precision=row["precision"] or "bf16",
        spec=measured_model(row["model_path"], row["precision"]),
        gpu=named_gpu(gpu),
        version=version,
        parallel=_parallelism(row, recipe),
        recipe=recipe,
        input_tokens=input_tokens,
        output_tokens=_count(row, "osl"),
        users=_users(row, source),
        ttft=ttft,
        tpot=tpot,
    )


def _parallelism(row: Mapping[str, str], recipe: Recipe) -> Parallelism:
    """What the record says. Its ``tp_size`` counts all GPUs of the engine; with data-parallel attention each has its
    own requests. Records without ``attention_dp_size`` count the GPUs of the experts, and the rest is data parallel.
    """
    tp = _count(row, "tp_size")
    experts_cut, experts_dealt = (_count(row, name, 0) for name in ("moe_tp_size", "moe_ep_size"))
    pipeline = int(row.get("pp_size") or 1)
    by_record = row.get("attention_dp_size")
    if by_record and int(by_record) > 1:
        if not recipe.knows_data_parallel:
            return Parallelism(tensor=tp, pipeline=pipeline, expert=True)
        return Parallelism(tensor=max(1, tp // int(by_record)), data=int(by_record), pipeline=pipeline, expert=True)
    expert = experts_dealt > 1 or (recipe.always_expert_parallel and experts_cut * experts_dealt > 1)
    data = 1 if by_record else max(1, experts_cut * experts_dealt // tp)
    return Parallelism(tensor=tp, data=data, pipeline=pipeline, expert=expert)


def _users(row: Mapping[str, str], source: str) -> int:
    concurrency = re.search(r"silicon_concurrency=(\d+)", source)
    return int(concurrency.group(1)) if concurrency is not None else _count(row, "batch_size")


def _count(row: Mapping[str, str], name: str, least: int = 1) -> int:
    try:
        value = int(float(row[name] or 0))
    except (ValueError, OverflowError):
        value = least - 1
    if not least <= value < MAX_COUNT:
        raise ConfigError(name, row[name], f"give a whole number, at least {least}")
    return value


def _positive(row: Mapping[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(name, row[name], "give milliseconds above 0")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# A result file of ``vllm bench serve`` (``--save-result``) as a measured point.
#
# It tells the load and the times, but not the engine: model, GPU and parallelism are given with it.

_NEEDED = ("num_prompts", "total_input_tokens", "total_output_tokens", "mean_ttft_ms", "mean_tpot_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a result file does not record."""

    spec: ModelSpec | None = None
    """None: by the result's ``model_id``."""
    gpu: GPU | None = None
    parallel: Parallelism = field(default_factory=Parallelism)
    version: str = ""
    max_num_batched_tokens: int = 8192
    kv_cache_dtype: str | None = None


def read_bench_result(path: Path, engine: Engine) -> Point:
    """The point. Raises WorkloadError for a file that is none, ConfigError for what it lacks."""
    found = json_object(path)
    missing = [name for name in _NEEDED if not isinstance(found.get(name), int | float)]
    if missing:
        raise WorkloadError(str(path), 1, f"is no result of vllm bench serve: it lacks {', '.join(missing)}")
    if engine.gpu is None:
        raise ConfigError("gpu", None, "give §gpu: a result of vllm bench serve does not name the GPU")
    prompts = int(found["num_prompts"])
    users = found.get("max_concurrency")
    if users is None:  # all at once
        users = prompts
    if prompts < 1 or int(users) < 1:
        raise WorkloadError(str(path), 1, "must have num_prompts and max_concurrency above 0")
    model = str(found.get("model_id") or "")
    spec = engine.spec or measured_model(model, "fp8" if "fp8" in model.lower() else "")
    recipe = Recipe(
        max_num_batched_tokens=engine.max_num_batched_tokens,
        kv_cache_dtype=engine.kv_cache_dtype,
        async_scheduling=prepares_ahead(engine.version),
        shortest=1.0,
    )
    ttft, tpot = float(found["mean_ttft_ms"]), float(found["mean_tpot_ms"])
    if not (0 < ttft < math.inf and 0 < tpot < math.inf):
        raise WorkloadError(str(path), 1, "must have mean_ttft_ms and mean_tpot_ms above 0")
    return Point(
        name=path.name,
        model=model or spec.name,
        precision=spec.weight_format.name,
        spec=spec,
        gpu=engine.gpu,
        version=engine.version,
        parallel=engine.parallel,
        recipe=recipe,
        input_tokens=max(1, round(found["total_input_tokens"] / prompts)),
        output_tokens=max(2, round(found["total_output_tokens"] / prompts)),
        users=min(int(users), prompts),
        rounds=max(1, round(prompts / min(int(users), prompts))),
        ttft=ttft / 1e3,
        tpot=tpot / 1e3,
    )
