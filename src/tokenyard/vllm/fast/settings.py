"""vLLM's configuration as ours; what we do not model is refused by the name of its option."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from tokenyard.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.errors import ConfigError
from tokenyard.kv.hybrid_coordinator import hash_block_size
from tokenyard.profiles import DecisionProfile, decision_profile
from tokenyard.vllm.fast.refusals import check_options
from tokenyard.vllm.kv_groups import KINDS, known_group
from tokenyard.vllm.versions import profile_name

__all__ = ["EncoderRoom", "Settings", "translated_settings"]


class EncoderRoom(NamedTuple):
    """What a multi-modal model's encoder may do; zeros for a text model."""

    max_num_encoder_input_tokens: int = 0
    """Embeddings computed in one step."""
    encoder_cache_size: int = 0
    """Embeddings kept."""


class Settings(NamedTuple):
    """What a :class:`~tokenyard.sched.scheduler.Scheduler` is made of."""

    scheduler: SchedulerConfig
    cache: CacheConfig
    speculative: SpeculativeConfig | None


def translated_settings(
    vllm_config: Any, kv_cache_config: Any, encoder: EncoderRoom, hash_size: int | None
) -> Settings:
    """Our settings for a ``VllmConfig`` and a ``KVCacheConfig``; ConfigError for what they ask for and we lack.

    ``hash_size`` is the unit in tokens in which vLLM hashes blocks (None: it does not say).
    """
    check_options(vllm_config, kv_cache_config)
    profile = _profile(kv_cache_config)
    speculative = _speculative(vllm_config)
    cache = _cache(vllm_config, kv_cache_config)
    scheduler = _scheduler(vllm_config, cache, profile, encoder)
    if cache.enable_prefix_caching and hash_size not in (None, hash_block_size(cache)):
        fix = f"our hashes are of {hash_block_size(cache)} tokens each for these layers: choose another --block-size"
        raise ConfigError("hash_block_size", hash_size, fix)
    return Settings(scheduler, cache, speculative)


def _profile(kv_cache_config: Any) -> DecisionProfile:
    profile = decision_profile(profile_name())
    if hasattr(kv_cache_config, "prefix_cache_retention_interval"):
        interval = kv_cache_config.prefix_cache_retention_interval
        profile = replace(profile, prefix_cache_retention_interval=interval)
    return profile


def _scheduler(vllm_config: Any, cache: CacheConfig, profile: DecisionProfile, encoder: EncoderRoom) -> SchedulerConfig:
    theirs, lora = vllm_config.scheduler_config, vllm_config.lora_config
    budget = theirs.max_num_scheduled_tokens or theirs.max_num_batched_tokens
    forgetful = any(group.kind is not GroupKind.FULL for group in cache.groups)
    if budget != theirs.max_num_batched_tokens and (forgetful or profile.drafts_take_input_slots):
        fix = f"it differs from --max-num-batched-tokens ({theirs.max_num_batched_tokens}): give both the same value"
        raise ConfigError("--max-num-scheduled-tokens", budget, fix)
    return SchedulerConfig(
        profile=profile,
        max_num_seqs=theirs.max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=vllm_config.model_config.max_model_len,
        policy=str(theirs.policy),
        enable_chunked_prefill=theirs.enable_chunked_prefill,
        long_prefill_token_threshold=theirs.long_prefill_token_threshold,
        scheduler_reserve_full_isl=theirs.scheduler_reserve_full_isl,
        async_scheduling=bool(theirs.async_scheduling),
        max_loras=lora.max_loras if lora else 0,
        max_num_encoder_input_tokens=encoder.max_num_encoder_input_tokens,
        encoder_cache_size=encoder.encoder_cache_size,
        disable_chunked_mm_input=bool(theirs.disable_chunked_mm_input),
        count_common_prefix_blocks=profile.reports_common_prefix,
    )


def _cache(vllm_config: Any, kv_cache_config: Any) -> CacheConfig:
    theirs, parallel = vllm_config.cache_config, vllm_config.parallel_config
    groups = tuple(_group(each) for each in kv_cache_config.kv_cache_groups)
    has_states = any(group.kind is GroupKind.MAMBA for group in groups)
    return CacheConfig(
        num_gpu_blocks=kv_cache_config.num_blocks,
        block_size=theirs.block_size,
        enable_prefix_caching=bool(theirs.enable_prefix_caching),
        groups=groups,
        mamba_cache_mode=MambaCacheMode(theirs.mamba_cache_mode) if has_states else MambaCacheMode.NONE,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        prefill_context_parallel_size=parallel.prefill_context_parallel_size,
        watermark=float(getattr(vllm_config.scheduler_config, "watermark", 0.0)),
    )


def _group(group: Any) -> KVCacheGroup:
    known = known_group(group)
    if known is None:
        fix = f"FastScheduler serves groups of: {', '.join(KINDS)}; use vLLM's own scheduler for this model"
        raise ConfigError("KV-cache group", type(group.kv_cache_spec).__name__, fix)
    return known


def _speculative(vllm_config: Any) -> SpeculativeConfig | None:
    theirs = vllm_config.speculative_config
    if theirs is None:
        return None
    ours = SpeculativeConfig(num_speculative_tokens=theirs.num_speculative_tokens, method=_method(theirs))
    _check_derived(vllm_config, ours)
    return ours


def _method(theirs: Any) -> SpeculativeMethod:
    """The source of the drafts, as far as scheduling can tell them apart."""
    if theirs.uses_draft_model():
        return SpeculativeMethod.DRAFT_MODEL
    if theirs.use_eagle():
        return SpeculativeMethod.EAGLE
    if theirs.method in ("ngram", "ngram_gpu"):
        return SpeculativeMethod(theirs.method)
    fix = "FastScheduler knows ngram, ngram_gpu, eagle, eagle3, mtp and draft_model: use vLLM's own scheduler"
    raise ConfigError("--speculative-config method", theirs.method, fix)


def _check_derived(vllm_config: Any, ours: SpeculativeConfig) -> None:
    """What vLLM makes of its settings has to be what we make of ours (later versions say it)."""
    caching = bool(vllm_config.cache_config.enable_prefix_caching)
    expected = {
        "num_lookahead_tokens": (ours.num_lookahead_tokens,),
        "num_hash_lookahead_tokens": (int(ours.use_eagle and caching),),
        "num_prefill_lookahead_tokens": (0, 1),
    }
    for name, values in expected.items():
        theirs = getattr(vllm_config, name, values[0])
        if theirs not in values:
            fix = f"--speculative-config leads to it, and FastScheduler knows {values[-1]}: use vLLM's own scheduler"
            raise ConfigError(name, theirs, fix)
    slots = getattr(vllm_config.speculative_config, "max_num_new_slots_for_drafting", ours.num_draft_slots)
    if slots != ours.num_draft_slots:
        fix = f"these drafts need {slots} input slots, FastScheduler counts {ours.num_draft_slots}: use vLLM's own"
        raise ConfigError("--speculative-config", vllm_config.speculative_config.method, fix)
