"""What a pasted text says beside flags, as settings: version, GPU, replicas, what a start-up log settled."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPUS
from tokenyard.launch.defaults import DEFAULT_VERSION, KNOWN_VERSIONS
from tokenyard.launch.serve_line import ServeLine
from tokenyard.launch.texts.gpu_labels import gpu_named
from tokenyard.launch.texts.started import NO_GPU, Found, Said

__all__ = ["CHANGES_MEMORY", "Pasted", "said_beside_flags"]

CHANGES_MEMORY = frozenset(
    (
        "block_size", "cudagraph_capture_sizes", "data_parallel_size", "decode_context_parallel_size", "dtype",
        "enable_expert_parallel", "enable_lora", "enforce_eager", "gpu_memory_utilization", "kv_cache_dtype",
        "kv_cache_memory_bytes", "language_model_only", "max_cudagraph_capture_size", "max_lora_rank", "max_loras",
        "max_num_batched_tokens", "max_num_seqs", "model", "num_gpu_blocks_override", "num_speculative_tokens",
        "performance_mode", "pipeline_parallel_size", "quantization", "spec_method", "spec_tokens",
        "speculative_config", "tensor_parallel_size", "vllm_version",
    )
)  # fmt: skip
"""Settings that, given beside a log, make another deployment of it than the one whose memory it tells."""
_GIB = float(1 << 30)


class Pasted(NamedTuple):
    """What there is beside flags."""

    values: dict[str, Any]
    """Settings by name."""
    found: tuple[Found, ...]
    """The same for a header, with what was not taken, and why."""
    logged: tuple[str, ...]
    """Those of the settings that vLLM's log tells, and that hold for this deployment alone."""


def said_beside_flags(
    line: ServeLine,
    *,
    typed: Collection[str],
    gpu: str | None,
    has: Collection[str],
    one_deployment: bool,
    with_trace: bool,
) -> Pasted:
    """What ``line`` says of settings that the command ``has`` and that nobody has ``typed``; ``gpu`` if it was.

    ``one_deployment``: the command replays the deployment as it is, not variants of it, for which a log's memory and
    limits would not hold. Raises ConfigError for a GPU that is not known here.
    """
    values: dict[str, Any] = {}
    found: list[Found] = []
    logged: list[str] = []

    def take(name: str, value: object, why: str) -> None:
        values[name] = value
        found.append(Found(name.replace("_", "-"), value, why))

    if line.version is not None and "vllm_version" not in typed:
        take("vllm_version", *_version(line.version))
    if line.gpu is not None and "gpu" not in typed:
        take("gpu", _known_gpu(line.gpu), line.gpu.where)
    if line.replicas is not None and line.replicas.value != "1" and "replicas" not in typed:
        problem = _no_replicas(line, has=has, typed=typed, one_deployment=one_deployment, with_trace=with_trace)
        if problem is None:
            take("replicas", line.replicas.value, f"{line.replicas.where}; --replicas 1 if the log is of one of them")
        else:
            why = f"{line.replicas.where}; {problem}, so that one of them gets all the traffic here"
            found.append(Found("replicas", line.replicas.value, why))
    is_other_gpu = line.gpu is not None and gpu is not None and (gpu_named(gpu) or gpu) != line.gpu.value
    other = sorted(CHANGES_MEMORY & set(typed)) + ["gpu"] * is_other_gpu
    for name, value, why in _logged(line):
        if name in typed or name not in has:
            continue
        if not one_deployment or other:
            because = f"not taken: {', '.join(other)} is given beside it" if other else "not taken for variants of it"
            found.append(Found(name.replace("_", "-"), value, f"{why}; {because}"))
        else:
            take(name, value, why)
            logged.append(name)
    notes = [note for note in line.notes if note != NO_GPU or gpu is None]
    return Pasted(values, (*found, *notes), tuple(logged))


def _version(said: Said) -> tuple[str, str]:
    """The version whose decisions are known here that is nearest, and why it was taken."""
    parts = said.value.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return DEFAULT_VERSION, f"{said.where} names no version: the newest that is known here"
    short = ".".join(parts[:2])
    if short in KNOWN_VERSIONS:
        return short, f"{said.value}, {said.where}"
    minor = int(parts[1]) if parts[0] == "0" else 1 << 20
    nearest = min(reversed(KNOWN_VERSIONS), key=lambda known: abs(int(known.partition(".")[2]) - minor))
    return nearest, f"decisions of {said.value} ({said.where}) are not known here: the nearest that are"


def _known_gpu(said: Said) -> str:
    if said.value not in GPUS:
        known = ", ".join(GPUS)
        raise ConfigError("gpu", said.value, f"{said.where}: is not known here: --gpu names one of {known}")
    return said.value


def _no_replicas(
    line: ServeLine, *, has: Collection[str], typed: Collection[str], one_deployment: bool, with_trace: bool
) -> str | None:
    """Why replicas cannot be replayed; None if they can."""
    sizes = [each.value for each in line.given if each.flag.field == "data_parallel_size"]
    if not one_deployment or "replicas" not in has:
        return "this command replays one deployment"
    if with_trace or os.environ.get("SCHED_TRACE_PATH"):
        return "a replay with replicas writes no trace"
    if "data_parallel_size" in typed or any(size != 1 for size in sizes):
        return "replicas of several engines each are not replayed"
    return None


def _logged(line: ServeLine) -> Iterator[tuple[str, object, str]]:
    """What a start-up log says of settings that nobody gave."""
    given = {each.flag.field for each in line.given}
    for name, value in line.resolved.items():
        if name not in given:
            yield name, value, "as vLLM settled it, by the start-up log"
    memory = line.kv.memory_bytes
    if memory is not None and not given & {"kv_cache_memory_bytes", "num_gpu_blocks_override"}:
        yield "kv_cache_memory_bytes", memory, f"{memory / _GIB:.2f} GiB, available by the start-up log"
