"""What a replay makes of a line, `Deployment(LINE)`, up to the first step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from config_oracle.draw import Case
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.resolve import AUTO
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.errors import ConfigError, NoStartError, NotModelledError, TokenyardError
from tokenyard.questions.scenario import Scenario, replay_spec
from tokenyard.workload.load import read_workload

__all__ = ["Answer", "Ours"]

_MEMORY = ("is an estimate", "GiB of KV cache", "usable:")
"""In what is said where memory runs out, which a configuration alone does not know."""

_KV_SCALES = ("does not go with weights of",)
"""In what is said of fp8_e5m2 beside weights that bring scales of keys and values."""

_WEIGHTS = ("must divide the", "is quantised: enable_expert_parallel")


@dataclass(frozen=True, slots=True)
class Answer:
    """Settings, or why there are none."""

    settings: dict[str, Any]
    refused: str = ""
    says_no_start: bool = False
    """It is said that vLLM would not start."""
    for_memory: bool = False
    for_weights: bool = False
    """It is said of what vLLM finds out when it builds the model, after its configuration."""
    for_kv_scales: bool = False
    """The same, of its attention layers."""
    named: tuple[str, ...] = ()
    """What the header says is not modelled and ignored."""
    changes_values: bool = False
    """By our table, what was ignored changes more than time."""


class Ours:
    """Our side."""

    def __init__(self) -> None:
        self._workload = read_workload("random", limit=1)

    def settle(self, case: Case, version: str) -> Answer:
        """Everything that is compared, or why nothing is."""
        asked = GivenFlags()
        try:
            beside: dict[str, Any] = {"gpu": case.gpu, "vllm_version": version, "ignore_unmodelled": case.ignores}
            settings = Deployment(case.line, **beside).settings
            asked = settings.launch.asked
            groups = {each.name: getattr(settings, each.name) for each in fields(DeploymentSettings)}
            setup = replay_spec(Scenario(workload="random", **groups), self._workload)
        except NotModelledError as error:
            return Answer({}, refused=f"not modelled: {error}")
        except NoStartError as error:
            return Answer(
                {},
                refused=str(error),
                # What was ignored might have made it start.
                says_no_start=not asked.not_modelled,
                for_memory=_says(error, _MEMORY),
                for_weights=_says(error, _WEIGHTS),
                for_kv_scales=_says(error, _KV_SCALES),
            )
        except ConfigError as error:
            return Answer({}, refused=f"{error.field}: {error.fix}")
        except TokenyardError as error:
            return Answer({}, refused=str(error))
        named = tuple(setup.deployment.ignored)
        others = tuple(f"a flag of another version: {each}" for each in asked.missing_in(version))
        changes = any(not each.flag.why.startswith("time:") for each in asked.not_modelled)
        changes |= len(named) > len(asked.not_modelled)
        settled = _settled(setup)
        if settings.scheduler.max_model_len == AUTO:
            # vLLM fits it when it plans blocks, after its configuration: what both fit from is compared.
            settled["max_model_len"] = setup.settled.model.max_model_len
        return Answer(settled, named=(*named, *others), changes_values=changes)


def _says(error: NoStartError, words: tuple[str, ...]) -> bool:
    return any(word in str(error) for word in words)


def _settled(setup: ReplaySpec) -> dict[str, Any]:
    settled, scheduler, cache = setup.settled, setup.scheduler, setup.cache
    hardware, parallel, adapters = settled.hardware, settled.parallel, settled.adapters
    drafts = None if setup.speculation is None else setup.speculation.config
    return {
        "max_num_batched_tokens": settled.scheduling.max_num_batched_tokens,
        "token_budget": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_active_seqs": scheduler.max_num_seqs,
        "max_model_len": settled.plan.max_model_len,
        "policy": scheduler.policy,
        "async_scheduling": scheduler.async_scheduling,
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "disable_chunked_mm_input": scheduler.disable_chunked_mm_input,
        "watermark": cache.watermark,
        "prefill_schedule_interval": 1,
        "scheduler_cls": None,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "block_size": cache.block_size,
        "cache_dtype": settled.plan.kv_cache_dtype,
        "gpu_memory_utilization": hardware.gpu_memory_utilization,
        "kv_cache_memory_bytes": hardware.kv_cache_memory_bytes,
        "num_gpu_blocks_override": hardware.num_gpu_blocks_override,
        "mamba_cache_mode": str(settled.plan.mamba_cache_mode),
        "tensor_parallel_size": hardware.tensor_parallel_size,
        "pipeline_parallel_size": scheduler.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        "decode_context_parallel_size": cache.decode_context_parallel_size,
        "prefill_context_parallel_size": cache.prefill_context_parallel_size,
        "enable_expert_parallel": parallel.enable_expert_parallel,
        "enforce_eager": hardware.enforce_eager,
        "max_cudagraph_capture_size": settled.capture_size,
        "cudagraph_capture_sizes": list(settled.cudagraph_capture_sizes),
        "num_speculative_tokens": 0 if drafts is None else drafts.num_speculative_tokens,
        "use_eagle": drafts is not None and drafts.use_eagle,
        "max_loras": scheduler.max_loras,
        "max_lora_rank": adapters.max_lora_rank if adapters.enable_lora else 0,
        "kv_connector": None if setup.kv_transfer is None else setup.kv_transfer.config.kv_connector,
        "dtype": settled.model.dtype,
        "quantized": settled.model.quantization is not None,
    }
