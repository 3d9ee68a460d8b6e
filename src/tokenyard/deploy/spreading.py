"""Ways to spread a model over GPUs and machines that vLLM refuses, or that a replay cannot follow."""

from __future__ import annotations

from tokenyard.core.config import require_int
from tokenyard.deploy.settings import ParallelSettings
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.deploy.vllm_serve.start_checks import MOST_NODES, no_start
from tokenyard.errors import ConfigError
from tokenyard.models.spec import ModelSpec

BACKENDS = ("mp", "uni", "ray", "external_launcher")
"""Values of ``--distributed-executor-backend``."""
_COUNTS_EXPERTS = ("NemotronHForCausalLM",)
"""Architectures whose configuration counts experts where the file, and the model, have none."""


def check_stages(parallel: ParallelSettings, gpus: int, model: ModelSpec, *, has_drafts: bool) -> None:
    """Raise ConfigError for what is wrong or not modelled, with a way around, NoStartError for too many stages, and for
    a model without a pipeline; ``gpus`` are those of a stage.
    """
    stages, backend = parallel.pipeline_parallel_size, parallel.distributed_executor_backend
    require_int("nnodes", parallel.nnodes, 1, MOST_NODES)
    require_int("pipeline_parallel_size", stages, 1)
    with no_start():
        require_int("pipeline_parallel_size", stages, 1, model.num_layers)
    if backend not in (None, *BACKENDS):
        raise ConfigError("distributed_executor_backend", backend, f"use one of: {', '.join(BACKENDS)}")
    if stages > 1 and backend == "uni":
        raise refused("uni_runs_no_pipeline", backend, stages=stages)
    if stages > 1 and not model.runs_in_stages:
        raise refused("no_pipeline", stages)
    problem = ""
    if stages > 1 and parallel.data_parallel_size > 1 and model.has_experts:
        problem = "stages of engines that share experts are not modelled: replay one engine's share of the traffic"
    elif stages > 1 and has_drafts:
        problem = "drafts in a pipeline are not modelled: leave one of the two out"
    if problem:
        raise ConfigError("pipeline_parallel_size", stages, problem)
    num_gpus = gpus * stages * parallel.data_parallel_size
    with no_start():
        if num_gpus % parallel.nnodes:
            fix = f"{num_gpus} GPUs (tensor x pipeline x data parallel) do not divide by it: give a divisor"
            raise ConfigError("nnodes", parallel.nnodes, fix)


def check_engines(parallel: ParallelSettings, model: ModelSpec) -> None:
    """Engines on each machine: ConfigError for what is no number, NoStartError for more than there are; and for experts
    that are to be shared out where there are none.
    """
    local = parallel.data_parallel_size_local
    if local is not None:
        require_int("data_parallel_size_local", local, 0, MOST_NODES)
        if local > parallel.data_parallel_size:
            raise refused("too_many_local_engines", local, most=parallel.data_parallel_size)
    if parallel.enable_expert_parallel and not model.has_experts and model.architecture not in _COUNTS_EXPERTS:
        raise refused("no_experts", value=True, model=model.name)
