"""Measured points: one load on one deployment, with the mean TTFT and TPOT; read from a table (.csv, .csv.gz)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenyard.config import MAX_COUNT
from tokenyard.errors import ConfigError, TokenyardError, WorkloadError
from tokenyard.kv.sizing.gpus import GPU, named_gpu
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.accuracy.input_files import table_rows
from tokenyard.sim.accuracy.models import measured_model
from tokenyard.sim.accuracy.recipes import Recipe, recipe_of
from tokenyard.sim.latency.steptime.amounts import Parallelism

__all__ = ["Point", "Unread", "read_points"]

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
"""That a table must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured load on one deployment."""

    name: str
    model: str
    """As the record names it."""
    precision: str
    spec: ModelSpec
    gpu: GPU
    version: str
    """Of vLLM; may be empty."""
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


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that is not compared, and why."""

    line: int
    problem: str


def read_points(path: Path) -> tuple[list[Point], list[Unread]]:
    """Points of vLLM on one kind of engine; rows of other engines are passed over silently, others with their reason.

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
