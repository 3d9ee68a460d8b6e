"""Options of vLLM that FastScheduler does not serve: the engine ends at its start, and says which option it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError

__all__ = ["check_options"]

_INSTEAD = "FastScheduler does not serve it: leave it out, or use vLLM's own scheduler"


class _Option(NamedTuple):
    flag: str
    value: Callable[[Any], object]
    """Reads it from a ``VllmConfig``; AttributeError where this version has no such option."""
    allowed: tuple[object, ...] = (None, False)


_OPTIONS = (
    _Option("--kv-transfer-config", lambda c: c.kv_transfer_config),
    _Option("--kv-events-config", lambda c: bool(c.kv_events_config and c.kv_events_config.enable_kv_cache_events)),
    _Option("--ec-transfer-config", lambda c: c.ec_transfer_config),
    _Option("--pipeline-parallel-size", lambda c: c.parallel_config.pipeline_parallel_size, (1,)),
    _Option("--runner", lambda c: c.model_config.runner_type, ("generate",)),
    _Option("an encoder-decoder model", lambda c: c.model_config.is_encoder_decoder),
    _Option("a diffusion model", lambda c: c.model_config.is_diffusion),
    _Option("an encoder-only instance", lambda c: c.is_mm_encoder_only),
    _Option("--enable-return-routed-experts", lambda c: c.model_config.enable_return_routed_experts),
    _Option("--return-sampling-mask", lambda c: c.model_config.return_sampling_mask),
    _Option("auxiliary outputs", lambda c: c.aux_output_config.enabled),
    _Option("an encoder cache manager", lambda c: c.ec_manager_config.get_encoder_cache_manager_obj()),
    _Option("--kv-cache-metrics", lambda c: c.observability_config.kv_cache_metrics),
    _Option("--enable-mfu-metrics", lambda c: c.observability_config.enable_mfu_metrics),
    _Option(
        "--per-request-spec-decode-metrics",
        lambda c: c.observability_config.per_request_spec_decode_metrics,
        (None, False, "none"),
    ),
    _Option("--prefill-schedule-interval", lambda c: c.scheduler_config.prefill_schedule_interval, (1,)),
    _Option(
        "--long-prefill-token-threshold-adaptive", lambda c: c.scheduler_config.long_prefill_token_threshold_adaptive
    ),
    _Option("--enable-mamba-shared-prefix-checkpoint", lambda c: c.cache_config.enable_mamba_shared_prefix_checkpoint),
    _Option(
        "num_speculative_tokens_per_batch_size",
        lambda c: c.speculative_config and c.speculative_config.num_speculative_tokens_per_batch_size,
    ),
    _Option(
        "disable_eagle_block_drop", lambda c: c.speculative_config and c.speculative_config.disable_eagle_block_drop
    ),
    _Option("HiSparse", lambda c: c.attention_config.hisparse_config),
)


def check_options(vllm_config: Any, kv_cache_config: Any) -> None:
    """Raise ConfigError for the first option that FastScheduler does not serve."""
    for option in _OPTIONS:
        try:
            value = option.value(vllm_config)
        except AttributeError:
            continue  # this version has no such option
        if value not in option.allowed:
            raise ConfigError(option.flag, value, _INSTEAD)
    _check_active_seqs(vllm_config.scheduler_config)
    _check_groups(vllm_config, kv_cache_config)
    if vllm_config.use_v2_model_runner and vllm_config.model_config.is_multimodal_model:
        fix = "its updates of encoder inputs are not translated: set VLLM_USE_V2_MODEL_RUNNER=0"
        raise ConfigError("a multi-modal model with the second model runner", vllm_config.model_config.model, fix)


def _check_active_seqs(theirs: Any) -> None:
    active = getattr(theirs, "max_num_active_seqs", None)
    if active not in (None, theirs.max_num_seqs):
        fix = f"FastScheduler lets --max-num-seqs ({theirs.max_num_seqs}) run: give both the same value"
        raise ConfigError("--max-num-active-seqs", active, fix)


def _check_groups(vllm_config: Any, kv_cache_config: Any) -> None:
    groups = kv_cache_config.kv_cache_groups
    if not groups:
        raise ConfigError("the model", vllm_config.model_config.model, "it has no KV cache, and needs no FastScheduler")
    if getattr(kv_cache_config, "hisparse_host_num_blocks", None) is not None:
        raise ConfigError("HiSparse", kv_cache_config.hisparse_host_num_blocks, _INSTEAD)
    for group in groups:
        if getattr(group.kv_cache_spec, "prefix_replay_tokens", 0):
            raise ConfigError("a KV-cache group that replays prefixes", type(group.kv_cache_spec).__name__, _INSTEAD)
    if kv_cache_config.needs_kv_cache_zeroing and not kv_cache_config.has_mamba_layers:
        raise ConfigError("a KV cache of several precisions", value=True, fix=_INSTEAD)
