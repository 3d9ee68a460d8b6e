"""What vllm serve takes where nothing is given, and which variables change it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tokenyard.core.config import SpeculativeConfig, SpeculativeMethod, async_scheduling_by_default
from tokenyard.core.profiles import NEWEST, PROFILES, release_facts, versions_with
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPU
from tokenyard.patterns import lazy_pattern
from tokenyard.quick_dataclass import dataclass
from tokenyard.units import GIB

# ---------------------------------------------------------------------------------------------------------------------
# Variables of the environment that a replay obeys as vLLM does.

ALLOW_LONG_MAX_MODEL_LEN = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
V2_MODEL_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
RAY_V2_EXECUTOR = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"
WORKER_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
OBEYED: dict[str, tuple[str, ...]] = {
    ALLOW_LONG_MAX_MODEL_LEN: tuple(PROFILES),
    V2_MODEL_RUNNER: versions_with("all_drafts_schedule_ahead"),
    RAY_V2_EXECUTOR: versions_with("ray_executor_can_be_older"),
    WORKER_METHOD: versions_with("shared_images_need_spawn"),
}
"""Each with the versions of vLLM in which it is read and modelled."""


def variable(name: str, given: Mapping[str, str]) -> str | None:
    """What a variable says, in front of a pasted line, else in the environment of this very command."""
    return given.get(name, os.environ.get(name))


def is_on(name: str, given: Mapping[str, str], *, default: bool = False) -> bool:
    """Whether a variable says yes."""
    text = variable(name, given)
    return default if text is None else text.strip().lower() in ("1", "true")


# ---------------------------------------------------------------------------------------------------------------------
# What ``vllm serve`` takes where no flag says: by GPU and by version.
#
# Token budget and sequences depend on the GPU: much memory means large ones, except on an A100, where they cost
# throughput. In later versions 160 GiB and more mean a still larger budget.

_VERSION = lazy_pattern(r"v?(\d{1,3})\.(\d{1,4})(?:\.\d{1,9})*(?:[.+-]?(?:rc|dev|post|a|b)\d*)?(?:[.+-][\w.]+)*")
"""``0.22``, ``v0.22.1``, ``0.22.1rc2``, ``0.22.1.dev17+g1a2b3c4``, ``0.22.1+cu129``."""
KNOWN_VERSIONS = tuple(PROFILES)
"""vLLM versions whose decisions and defaults are known."""
DEFAULT_VERSION = NEWEST.vllm_version
"""The newest: what is taken unless another is requested, in the command line as in the library."""
MEASURED_VERSION = KNOWN_VERSIONS[0]
"""What comparisons with measured runs take: nearest to the servers that were measured (0.11 to 0.19)."""
GPU_MEMORY_UTILIZATION = 0.92
"""The default of ``--gpu-memory-utilization`` in all versions."""
BLOCK_SIZE = 16
"""Tokens per block, in all versions, where no kernel asks for another."""

_BATCHED_EXPERTS_BUDGET = 256
BATCHED_EXPERTS = ("deepep_low_latency", "nixl_ep")
"""Exchanges of tokens between experts that take a fixed number of tokens from every engine."""
NOT_IN_GRAPHS = ("deepep_high_throughput", "moonep")
"""Exchanges of tokens between experts that cannot be part of a CUDA graph."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of a step."""

    max_num_seqs: int
    max_num_batched_tokens: int


_SMALL = BatchLimits(256, 2048)
_LARGE, _LARGE_GIB = BatchLimits(1024, 8192), 70
_LARGEST, _LARGEST_GIB = BatchLimits(1024, 16_384), 160
_NEVER_LARGE = "A100"
_ON_LARGE = f"on GPUs of {_LARGE_GIB} GiB, except {_NEVER_LARGE}"
SEQS_BY_GPU = f"as vllm serve: {_LARGE.max_num_seqs} {_ON_LARGE}; else {_SMALL.max_num_seqs}"
"""The defaults of ``--max-num-seqs``, in words."""
BUDGETS_BY_GPU = (
    f"as vllm serve: {_LARGE.max_num_batched_tokens} {_ON_LARGE}, {_LARGEST.max_num_batched_tokens} of "
    f"{_LARGEST_GIB} GiB; else {_SMALL.max_num_batched_tokens}"
)
"""The defaults of ``--max-num-batched-tokens``, in words."""


def known_version(version: str, *, or_nearest: bool = True) -> str:
    """``version`` as we name it (0.22.1 is 0.22); of one that is not known the nearest that is.

    ConfigError naming those that are known for what is no version, and unless ``or_nearest`` for one that is not known.
    """
    found = _VERSION.fullmatch(version.strip())
    if found is None or not (or_nearest or is_known(version)):
        raise ConfigError("vllm_version", version, f"use one of: {', '.join(KNOWN_VERSIONS)}")
    minor = int(found[2]) if found[1] == "0" else 1 << 20
    return min(reversed(KNOWN_VERSIONS), key=lambda known: abs(int(known.partition(".")[2]) - minor))


def is_known(version: str) -> bool:
    """Whether decisions of a version are known, not of its neighbours alone."""
    return version.strip().removeprefix("v").startswith(tuple(f"{known}." for known in KNOWN_VERSIONS)) or (
        version.strip().removeprefix("v") in KNOWN_VERSIONS
    )


def batch_limits(
    gpu: GPU,
    *,
    version: str,
    max_model_len: int,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enable_chunked_prefill: bool = True,
    for_throughput: bool = False,
    batches_experts: bool = False,
) -> BatchLimits:
    """The limits of ``vllm serve``: what is given, else the default for this GPU.

    ``for_throughput`` (``--performance-mode throughput``) doubles defaults; ``batches_experts`` (engines that share
    experts exchange batches of a fixed size) makes the default budget a small one. A default budget is no larger than
    what all sequences can hold together, and without chunked prefill no smaller than the longest prompt; the default
    number of sequences is no larger than the budget.
    """
    default = _by_gpu(gpu, version)
    budget = _BATCHED_EXPERTS_BUDGET if batches_experts else default.max_num_batched_tokens
    times = 2 if for_throughput else 1
    most = default.max_num_seqs * times if max_num_seqs is None else max_num_seqs
    tokens = max_num_batched_tokens
    if tokens is None:
        tokens = budget * times if enable_chunked_prefill else max(budget * times, max_model_len)
        tokens = min(tokens, most * max_model_len)
    if max_num_seqs is None:
        most = min(most, tokens)
    return BatchLimits(max_num_seqs=most, max_num_batched_tokens=tokens)


def _by_gpu(gpu: GPU, version: str) -> BatchLimits:
    if release_facts(version).largest_budget_on_160_gib and gpu.memory_bytes >= _LARGEST_GIB * GIB:
        return _LARGEST
    if gpu.memory_bytes >= _LARGE_GIB * GIB and not gpu.name.startswith(_NEVER_LARGE.lower()):
        return _LARGE
    return _SMALL


# ---------------------------------------------------------------------------------------------------------------------
# Whether vLLM schedules a step before the one before has ended: as requested, else by version, drafts and executor.


def schedules_ahead(
    version: str,
    asked: bool | None,
    speculative: SpeculativeConfig | None,
    variables: Mapping[str, str],
    *,
    backend: str | None,
    stages: int,
) -> bool:
    """``asked`` is what ``--[no-]async-scheduling`` says, None if neither is given; ``stages`` those of a pipeline.

    Of two variables, VLLM_USE_V2_MODEL_RUNNER and VLLM_USE_RAY_V2_EXECUTOR_BACKEND, a version heeds one. Raises
    NoStartError where vLLM cannot do what was asked.
    """
    if asked is False:
        return False
    facts = release_facts(version)
    if facts.all_drafts_schedule_ahead:
        problem = _problem(speculative, backend, stages, use_v2=is_on(V2_MODEL_RUNNER, variables, default=True))
    else:
        draft_models = asked is True or facts.draft_models_schedule_ahead
        ray_is_ahead = is_on(RAY_V2_EXECUTOR, variables, default=True)
        problem = _earlier_problem(speculative, backend, draft_models=draft_models, ray_is_ahead=ray_is_ahead)
    if asked and problem is not None:
        raise refused("not_ahead", value=True, problem=problem)
    return problem is None


def _earlier_problem(
    speculative: SpeculativeConfig | None, backend: str | None, *, draft_models: bool, ray_is_ahead: bool
) -> str | None:
    """A draft model may be requested where it is no default."""
    if backend == "ray" and not ray_is_ahead:
        return "VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0"
    if speculative is None or async_scheduling_by_default(speculative):
        return None
    if draft_models and speculative.method is SpeculativeMethod.DRAFT_MODEL:
        return None
    return f"drafts of method {speculative.method}"


def _problem(
    speculative: SpeculativeConfig | None, backend: str | None, pipeline_parallel_size: int, *, use_v2: bool
) -> str | None:
    """Only the older model runner has any; vLLM takes it for a pipeline that is launched from outside as well."""
    if use_v2 and not (backend == "external_launcher" and pipeline_parallel_size > 1):
        return None
    if speculative is not None and speculative.method is SpeculativeMethod.NGRAM:
        return f"drafts of method {speculative.method} in the V1 model runner"
    if pipeline_parallel_size > 1:
        return "a pipeline in the V1 model runner"
    return None
