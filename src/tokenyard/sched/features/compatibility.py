"""Settings of the scheduler and of the cache that do not go together: refused when the scheduler is made."""

from __future__ import annotations

from tokenyard.config import CacheConfig, GroupKind, MambaCacheMode, SchedulerConfig, SpeculativeConfig
from tokenyard.errors import ConfigError
from tokenyard.profiles import DecisionProfile

__all__ = ["check_settings", "has_cross_attention", "splits_at_blocks"]


def has_cross_attention(cache: CacheConfig) -> bool:
    """The model is an encoder-decoder."""
    return any(group.kind is GroupKind.CROSS_ATTENTION for group in cache.groups)


def splits_at_blocks(cache: CacheConfig) -> bool:
    """Prefill has to end where blocks do."""
    has_mamba = any(group.kind is GroupKind.MAMBA for group in cache.groups)
    return has_mamba and cache.mamba_cache_mode is MambaCacheMode.ALIGN


def check_settings(
    config: SchedulerConfig, cache: CacheConfig, spec: SpeculativeConfig | None, *, has_connector: bool
) -> None:
    """Raise ConfigError for what vLLM asserts, what it would do wrong, or where it would never go on."""
    _check_states(config.profile, cache)
    if spec is not None:
        _check_drafts(config, spec, has_hits=cache.enable_prefix_caching or has_connector)
    if splits_at_blocks(cache):
        _check_split(config, cache.block_size, has_connector=has_connector)
    if config.enable_return_routed_experts and cache.context_parallel_size > 1:
        fix = "routed experts are kept per block of one rank: use one rank"
        raise ConfigError("enable_return_routed_experts", value=True, fix=fix)
    if has_cross_attention(cache):
        _check_encoder_decoder(config, has_connector=has_connector)


def _check_states(profile: DecisionProfile, cache: CacheConfig) -> None:
    if all(group.kind is not GroupKind.MAMBA for group in cache.groups):
        return
    if cache.mamba_cache_mode is MambaCacheMode.ALL and not profile.mamba_mode_all:
        fix = f"vLLM {profile.vllm_version} has no such mode: use align"
        raise ConfigError("mamba_cache_mode", str(cache.mamba_cache_mode), fix)
    if profile.chunks_end_at_states and splits_at_blocks(cache) and min(cache.group_block_sizes) < cache.block_size:
        fix = (
            f"hits within a block of a state, which vLLM {profile.vllm_version} has, are not modelled: use equal sizes"
        )
        raise ConfigError("groups", sorted(cache.group_block_sizes), fix)


def _check_drafts(config: SchedulerConfig, spec: SpeculativeConfig, *, has_hits: bool) -> None:
    """A step must be able to hold what one request needs at least.

    A prefix hit can leave one token to compute, which is admitted with placeholder drafts or not at all.
    """
    profile = config.profile
    slots = spec.num_draft_slots if profile.drafts_take_input_slots else 0
    padding = spec.num_speculative_tokens if profile.admission_pads_decodes and has_hits else 0
    if config.max_num_batched_tokens < (least := 1 + padding + slots):
        fix = f"a request can need {least} tokens in one step, its drafts included, and would wait for ever: raise it"
        raise ConfigError("max_num_batched_tokens", config.max_num_batched_tokens, fix)


def _check_split(config: SchedulerConfig, block_size: int, *, has_connector: bool) -> None:
    why = "mamba_cache_mode align ends prefill steps where blocks end"
    if config.max_num_batched_tokens < block_size:
        fix = f"{why}: a step must hold a block ({block_size} tokens)"
        raise ConfigError("max_num_batched_tokens", config.max_num_batched_tokens, fix)
    if 0 < config.long_prefill_token_threshold < block_size:
        fix = f"{why}: give 0 or at least a block ({block_size} tokens)"
        raise ConfigError("long_prefill_token_threshold", config.long_prefill_token_threshold, fix)
    if not config.enable_chunked_prefill:
        raise ConfigError("enable_chunked_prefill", value=False, fix=f"{why}: allow chunks")
    if config.disable_chunked_mm_input:
        raise ConfigError("disable_chunked_mm_input", value=True, fix=f"{why}: allow parts of multi-modal items")
    if has_connector:
        raise ConfigError("kv_connector", "one", f"{why}, and a connector's tokens end anywhere: use none")


def _check_encoder_decoder(config: SchedulerConfig, *, has_connector: bool) -> None:
    why = "an encoder-decoder model computes a prompt at once, with the encoder's whole output"
    if config.enable_chunked_prefill:
        raise ConfigError("enable_chunked_prefill", value=True, fix=f"{why}: turn it off")
    if config.long_prefill_token_threshold:
        raise ConfigError("long_prefill_token_threshold", config.long_prefill_token_threshold, f"{why}: give 0")
    if not config.max_num_encoder_input_tokens:
        raise ConfigError("max_num_encoder_input_tokens", 0, "an encoder-decoder model needs an encoder budget")
    if has_connector:
        raise ConfigError("kv_connector", "one", "is not supported for encoder-decoder models: use none")
