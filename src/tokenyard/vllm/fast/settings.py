"""vLLM's configuration as ours; what is not modelled is refused by the name of its option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.kv.groups import hash_block_size
from tokenyard.core.outside import outside_features
from tokenyard.core.profiles import DecisionProfile, decision_profile
from tokenyard.errors import ConfigError
from tokenyard.vllm.versions import KINDS, installed_version, known_group, profile_name

# ---------------------------------------------------------------------------------------------------------------------
# Options of vLLM that FastScheduler does not serve: the engine ends at its start, and says which option it was.

_INSTEAD = "FastScheduler does not serve it: leave it out, or use vLLM's own scheduler"


class _Option(msgspec.Struct, frozen=True):
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


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's configuration as ours; what we do not model is refused by the name of its option.


class EncoderRoom(msgspec.Struct, frozen=True):
    """What a multi-modal model's encoder may do; zeros for a text model."""

    max_num_encoder_input_tokens: int = 0
    """Embeddings computed in one step."""
    encoder_cache_size: int = 0
    """Embeddings kept."""


class OurSettings(msgspec.Struct, frozen=True):
    """What a :class:`~tokenyard.core.sched.scheduler.Scheduler` is made of."""

    scheduler: SchedulerConfig
    cache: CacheConfig
    speculative: SpeculativeConfig | None


def translated_settings(
    vllm_config: Any, kv_cache_config: Any, encoder: EncoderRoom, hash_size: int | None
) -> OurSettings:
    """Our settings for a ``VllmConfig`` and a ``KVCacheConfig``; ConfigError for what they ask for and we lack.

    ``hash_size`` is the unit in tokens in which vLLM hashes blocks (None: it does not say).
    """
    check_options(vllm_config, kv_cache_config)
    profile = _profile(kv_cache_config)
    speculative = _speculative(vllm_config)
    cache = _cache(vllm_config, kv_cache_config)
    scheduler = _scheduler(vllm_config, cache, profile, encoder)
    for feature, what in outside_features(scheduler, cache).items():
        raise ConfigError(feature, f"vLLM {installed_version()}", f"not modelled ({what}): use vLLM's own scheduler")
    if cache.enable_prefix_caching and hash_size not in (None, hash_block_size(cache)):
        fix = f"our hashes are of {hash_block_size(cache)} tokens each for these layers: choose another --block-size"
        raise ConfigError("hash_block_size", hash_size, fix)
    return OurSettings(scheduler, cache, speculative)


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
