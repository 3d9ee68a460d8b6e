"""Settings that cannot work are refused when they are made: field, value and fix are named."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    HashAlgo,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.errors import ConfigError, TokenyardError

HUGE = 10**12
NEEDED: dict[type, dict[str, int]] = {
    CacheConfig: {"num_gpu_blocks": 100},
    SpeculativeConfig: {"num_speculative_tokens": 2},
}
"""Settings without a default."""
CONFIGS = [SchedulerConfig, CacheConfig, KVCacheGroup, SpeculativeConfig]


def _refused(config: type, field: str, value: Any, **others: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        config(**{**NEEDED.get(config, {}), **others, field: value})
    assert (refusal.value.field, refusal.value.value) == (field, value)
    assert refusal.value.fix
    assert str(refusal.value) == f"{field} = {value!r}: {refusal.value.fix}"
    return refusal.value


COUNTS = [
    (SchedulerConfig, "max_num_seqs", 1),
    (SchedulerConfig, "max_num_batched_tokens", 1),
    (SchedulerConfig, "max_model_len", 1),
    (SchedulerConfig, "long_prefill_token_threshold", 0),
    (SchedulerConfig, "max_loras", 0),
    (SchedulerConfig, "max_num_encoder_input_tokens", 0),
    (SchedulerConfig, "encoder_cache_size", 0),
    (CacheConfig, "num_gpu_blocks", 1),
    (CacheConfig, "block_size", 1),
    (KVCacheGroup, "block_size", 0),
    (KVCacheGroup, "window", 0),
    (SpeculativeConfig, "num_speculative_tokens", 1),
]


@pytest.mark.parametrize(("config", "field", "lowest"), COUNTS)
def test_counts_are_whole_numbers_within_bounds(config: type, field: str, lowest: int) -> None:
    for value in (lowest - 1, -5, HUGE, 2**31):
        assert "from" in _refused(config, field, value).fix
    for odd in (1.5, "4", None, True, float("nan")):
        assert "whole number" in _refused(config, field, odd).fix


@pytest.mark.parametrize(
    ("config", "field", "highest"),
    [(CacheConfig, "num_gpu_blocks", 1 << 24), (SchedulerConfig, "max_num_seqs", 1 << 20)],
)
def test_what_takes_memory_of_our_own_is_bounded(config: type, field: str, highest: int) -> None:
    """A slip of the finger must not end in the machine's memory being full."""
    assert getattr(config(**{field: highest}), field) == highest
    assert str(highest) in _refused(config, field, highest + 1).fix


@pytest.mark.parametrize(("config", "field", "lowest"), COUNTS)
def test_the_lowest_count_works(config: type, field: str, lowest: int) -> None:
    assert getattr(config(**{**NEEDED.get(config, {}), field: lowest}), field) == lowest


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (SchedulerConfig, "enable_chunked_prefill"),
        (SchedulerConfig, "scheduler_reserve_full_isl"),
        (SchedulerConfig, "async_scheduling"),
        (SchedulerConfig, "disable_chunked_mm_input"),
        (SchedulerConfig, "skip_oversized_prefill"),
        (CacheConfig, "enable_prefix_caching"),
        (KVCacheGroup, "is_eagle"),
    ],
)
@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_switches_are_true_or_false(config: type, field: str, value: Any) -> None:
    assert "true or false" in _refused(config, field, value).fix


@pytest.mark.parametrize("value", [-0.1, 1.1, HUGE, float("nan"), float("inf"), "0.1", None, True])
def test_the_watermark_is_a_fraction(value: Any) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1") as refusal:
        CacheConfig(num_gpu_blocks=10_318, watermark=value)
    assert refusal.value.field == "watermark"


@pytest.mark.parametrize("value", ["", 3, None])
def test_a_policy_is_a_name(value: Any) -> None:
    _refused(SchedulerConfig, "policy", value)


def test_an_unknown_hash_is_refused_with_the_known_ones() -> None:
    assert "sha256" in _refused(CacheConfig, "prefix_caching_hash_algo", "md5").fix


def test_a_seed_is_a_text() -> None:
    _refused(CacheConfig, "hash_seed", 7)


def test_an_unknown_drafting_method_is_refused_with_the_known_ones() -> None:
    assert "ngram" in _refused(SpeculativeConfig, "method", "magic", num_speculative_tokens=2).fix


def test_an_unknown_attention_type_is_refused_with_the_known_ones() -> None:
    assert "sliding_window" in _refused(KVCacheGroup, "kind", "mamba3").fix


@pytest.mark.parametrize("kind", [GroupKind.SLIDING_WINDOW, GroupKind.CHUNKED_LOCAL])
def test_a_window_has_a_length(kind: GroupKind) -> None:
    _refused(KVCacheGroup, "window", 0, kind=kind)


@pytest.mark.parametrize("value", [(), ("full",)])
def test_a_model_has_groups(value: Any) -> None:
    _refused(CacheConfig, "groups", value)


def test_chunked_local_attention_needs_one_block_size() -> None:
    groups = (KVCacheGroup(block_size=32), KVCacheGroup(kind=GroupKind.CHUNKED_LOCAL, window=64))
    with pytest.raises(ConfigError, match="one block size"):
        CacheConfig(num_gpu_blocks=10_318, groups=groups)


def test_without_chunking_the_longest_prompt_must_fit_a_step() -> None:
    fix = _refused(SchedulerConfig, "max_num_batched_tokens", 100, enable_chunked_prefill=False, max_model_len=101).fix
    assert "101" in fix
    SchedulerConfig(enable_chunked_prefill=False, max_num_batched_tokens=101, max_model_len=101)


@pytest.mark.parametrize("config", CONFIGS)
def test_an_unknown_field_is_refused(config: type) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        config(max_num_sequences=3)


@pytest.mark.parametrize("config", CONFIGS)
def test_settings_are_frozen_and_keyword_only(config: type) -> None:
    made = config(**NEEDED.get(config, {}))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(config)[0].name, 1)
    with pytest.raises(TypeError):
        config(3)


@pytest.mark.parametrize(
    ("method", "use_eagle", "lookahead"),
    [
        (SpeculativeMethod.NGRAM, False, 0),
        (SpeculativeMethod.NGRAM_GPU, False, 0),
        (SpeculativeMethod.EAGLE, True, 4),
        (SpeculativeMethod.DRAFT_MODEL, False, 4),
    ],
)
def test_what_a_drafting_method_needs(method: SpeculativeMethod, use_eagle: bool, lookahead: int) -> None:
    config = SpeculativeConfig(num_speculative_tokens=4, method=method)
    assert (config.use_eagle, config.num_lookahead_tokens) == (use_eagle, lookahead)


def test_every_error_is_ours_and_shortens_long_values() -> None:
    assert issubclass(ConfigError, TokenyardError)
    message = str(_message_of(list(range(1000))))
    assert len(message) < 300


def _message_of(value: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        SchedulerConfig(max_num_seqs=value)
    return refusal.value


def test_a_members_value_does_as_well_as_the_member() -> None:
    by_value = SpeculativeConfig(num_speculative_tokens=2, method="eagle")  # type: ignore[arg-type]
    assert by_value == SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE)
    assert by_value.use_eagle
    assert by_value.num_lookahead_tokens == 2
    assert KVCacheGroup(kind="mamba").kind is GroupKind.MAMBA  # type: ignore[arg-type]
    cache = CacheConfig(num_gpu_blocks=10_318, mamba_cache_mode="none", prefix_caching_hash_algo="xxh3_128")  # type: ignore[arg-type]
    assert cache.mamba_cache_mode is MambaCacheMode.NONE
    assert cache.prefix_caching_hash_algo is HashAlgo.XXH3_128
