"""Ways to spread a model over GPUs and machines that a replay cannot follow."""

from __future__ import annotations

from tokenyard.config import require_int
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.launch.start_checks import no_start
from tokenyard.models.attention import SoftmaxAttention
from tokenyard.models.spec import ModelSpec

__all__ = ["BACKENDS", "MOST_NODES", "check_context_parallel", "check_local_engines", "check_spreading"]

BACKENDS = ("mp", "uni", "ray", "external_launcher")
"""Of ``--distributed-executor-backend``."""
MOST_NODES = 1024


def check_spreading(
    *,
    pipeline_parallel_size: int,
    num_gpus: int,
    nnodes: int,
    backend: str | None,
    num_layers: int,
    engines_share_experts: bool,
    has_drafts: bool,
) -> None:
    """Raise ConfigError for what is wrong or not modelled, with a way around, NoStartError for too many stages.

    ``num_gpus`` are those of all engines.
    """
    stages = pipeline_parallel_size
    require_int("nnodes", nnodes, 1, MOST_NODES)
    require_int("pipeline_parallel_size", stages, 1)
    with no_start():
        require_int("pipeline_parallel_size", stages, 1, num_layers)
    if backend not in (None, *BACKENDS):
        raise ConfigError("distributed_executor_backend", backend, f"use one of: {', '.join(BACKENDS)}")
    if stages > 1 and backend == "uni":
        raise NoStartError(f"distributed_executor_backend = 'uni' runs no pipeline of {stages} stages: use mp or ray")
    problem = None
    if stages > 1 and engines_share_experts:
        problem = "stages of engines that share experts are not modelled: replay one engine's share of the traffic"
    elif stages > 1 and has_drafts:
        problem = "drafts in a pipeline are not modelled: leave one of the two out"
    if problem is not None:
        raise ConfigError("pipeline_parallel_size", stages, problem)
    with no_start():
        if num_gpus % nnodes:
            fix = f"{num_gpus} GPUs (tensor x pipeline x data parallel) do not divide by it: give a divisor"
            raise ConfigError("nnodes", nnodes, fix)


def check_local_engines(local: int | None, engines: int) -> None:
    """Engines on each machine: ConfigError for what is no number, NoStartError for more than there are."""
    if local is None:
        return
    require_int("data_parallel_size_local", local, 0, MOST_NODES)
    if local > engines:
        raise NoStartError(f"data_parallel_size_local = {local} is more than data_parallel_size = {engines}")


def check_context_parallel(model: ModelSpec, ranks: int, tensor_parallel_size: int, *, has_drafts: bool) -> None:
    """Whether the KV of a sequence can be spread over ``ranks`` GPUs of a tensor-parallel group.

    NoStartError where vLLM says no: heads of keys and values that each GPU has alone cannot be spread. ConfigError for
    what is not modelled.
    """
    name = "decode_context_parallel_size"
    require_int(name, ranks, 1, MOST_NODES)
    if ranks == 1:
        return
    if has_drafts:
        raise ConfigError(name, ranks, "is not modelled together with speculative decoding: leave one of the two out")
    copies = tensor_parallel_size
    kinds = [mixer for layer, _ in model.layer_counts for mixer in layer.mixers]
    if any(isinstance(mixer, SoftmaxAttention) for mixer in kinds):
        copies = tensor_parallel_size // model.num_kv_heads
    with no_start():
        if copies < ranks or tensor_parallel_size % ranks:
            fix = (
                f"{tensor_parallel_size} GPUs that share the layers have {max(copies, 1)} copies of each KV head of "
                f"{model.name}: give a divisor of that, or a larger tensor_parallel_size"
            )
            raise ConfigError(name, ranks, fix)
