"""What vLLM's planner and model classes answered, as recorded, beside what we make of the same ``config.json``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenyard.core.config import GroupKind
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.additions import with_state_dtypes
from tokenyard.models.gpus import GPUS
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import ModelSpec

LARGEST_WEIGHT_ERROR = 0.012
"""Biases are not shared out here, and scales per output channel are not counted; everything else is exact."""

_ONE_GPU = "supports tensor_parallel_size=1 only"
"""What vLLM says of a model that it does not share out."""
_KINDS = {
    "ChunkedLocalAttentionSpec": GroupKind.CHUNKED_LOCAL,
    "CircularBufferSpec": GroupKind.CIRCULAR_BUFFER,
    "CrossAttentionSpec": GroupKind.CROSS_ATTENTION,
    "FullAttentionSpec": GroupKind.FULL,
    "MLAAttentionSpec": GroupKind.FULL,
    "MambaSpec": GroupKind.MAMBA,
    "SinkFullAttentionSpec": GroupKind.FULL,
    "RSWASpec": GroupKind.FULL,
    "SlidingWindowMLASpec": GroupKind.SLIDING_WINDOW,
    "SlidingWindowSpec": GroupKind.SLIDING_WINDOW,
}


@cache
def recorded(file: Path) -> dict[str, Any]:
    """A file of answers."""
    content: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return content


def our_plan(model: ModelSpec, answer: dict[str, Any], around: dict[str, Any], available_bytes: int) -> dict[str, Any]:
    """Our plan in the words of :func:`their_plan`; ``around`` is the file with the answer."""
    options = answer.get("options", {})
    states = (options.get(name, "auto") for name in ("mamba_cache_dtype", "mamba_ssm_cache_dtype"))
    try:
        plan = plan_kv_cache(
            with_state_dtypes(model, *states),
            available_bytes=available_bytes,
            tensor_parallel_size=answer["tensor_parallel_size"],
            max_model_len=answer["max_model_len"],
            max_num_batched_tokens=around["settings"]["max_num_batched_tokens"],
            enable_prefix_caching=answer["enable_prefix_caching"],
            async_scheduling=answer["async_scheduling"],
            kv_cache_dtype=options.get("kv_cache_dtype", "auto"),
            states_kept=options.get("mamba_cache_mode", "none"),
            compute_capability=GPUS[around.get("gpu", "h100")].compute_capability,
            planner=around["versions"]["vllm"].rpartition(".")[0],
        )
    except ConfigError as error:
        return {"longest": (error.details or {}).get("longest", str(error))}
    groups = [
        (group.first.kind, group.first.block_size, len(group.layers), group.first.window) for group in plan.groups
    ]
    return {
        "num_blocks": plan.num_blocks,
        "tokens": plan.num_tokens,
        "concurrency": round(plan.max_concurrency, 6),
        "groups": groups,
    }


def their_plan(said: dict[str, Any]) -> dict[str, Any]:
    """The recorded plan."""
    if "refused" in said:
        return {"longest": said["estimated_max_model_len"]}
    groups = [(_KINDS.get(g["kind"], g["kind"]), g["block_size"], g["num_layers"], g["window"]) for g in said["groups"]]
    return {
        "num_blocks": said["num_blocks"],
        "tokens": said["tokens"],
        "concurrency": round(said["concurrency"], 6),
        "groups": groups,
    }


def model_of(case: dict[str, Any], architecture: str) -> ModelSpec:
    """What we make of a case's ``config.json``, read once however often it is asked for. Raises ConfigError."""
    return _read_once(json.dumps(case["config"]), architecture, case["variant"])


@cache
def _read_once(config: str, architecture: str, variant: str) -> ModelSpec:
    return model_from_config(json.loads(config), name=architecture, where=variant)


def differences(entry: dict[str, Any], around: dict[str, Any]) -> Iterator[str]:
    """What differs for an architecture of the recorded registry, one line each; nothing if all is equal."""
    for case in entry["cases"]:
        try:
            model = model_of(case, entry["architecture"])
        except ConfigError as error:
            yield str(error)
            continue
        for answer in case["tensor_parallel"]:
            at = f"{case['variant']}, tensor_parallel_size {answer['tensor_parallel_size']}"
            if "error" not in answer:
                yield from (f"{at}: {what}" for what in _of_answer(model, answer, around))


def _of_answer(model: ModelSpec, answer: dict[str, Any], around: dict[str, Any]) -> Iterator[str]:
    ours, theirs = model.weight_bytes(answer["tensor_parallel_size"]), answer["rank_weight_bytes"]
    if abs(ours / theirs - 1) > LARGEST_WEIGHT_ERROR:
        yield f"{ours:,} bytes of weights, {theirs:,} in vLLM"
    for field in ("dtype", "max_model_len"):
        if getattr(model, field) != answer[field]:
            yield f"{field} {getattr(model, field)}, {answer[field]} in vLLM"
    for said in answer["plans"]:
        plan, expected = our_plan(model, answer, around, said["available_bytes"]), their_plan(said)
        if plan != expected:
            yield f"plan {plan}, {expected} in vLLM"


def num_built(entry: dict[str, Any]) -> int:
    """Configurations and sizes of a tensor-parallel group for which vLLM built the model."""
    return sum("error" not in answer for case in entry["cases"] for answer in case["tensor_parallel"])


def is_proof(entry: dict[str, Any]) -> bool:
    """Whether enough was built to say that a row is right: the defaults and a drawn size, for several tp.

    Of a model that vLLM refuses to share out, the defaults and both drawn sizes on one GPU.
    """
    said = [answer for case in entry["cases"] for answer in case["tensor_parallel"]]
    refused = all(_ONE_GPU in answer["error"] for answer in said if "error" in answer)
    return len(entry["cases"]) >= 2 and num_built(entry) >= (3 if refused else 5)
