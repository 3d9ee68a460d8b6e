"""Turning a vector's header into a scheduler of ours, or saying which of its features we do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tokenyard.config import (
    CacheConfig,
    GroupKind,
    HashAlgo,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
    settings_for,
)
from tokenyard.errors import ConfigError
from tokenyard.params import PoolingParams, RepetitionDetectionParams
from tokenyard.parity.vector import Header, Json, RequestSpec
from tokenyard.profiles import PROFILES
from tokenyard.request import MultiModalItem, Request, SamplingParams
from tokenyard.sched.scheduler import Scheduler

__all__ = ["RecordedGrammar", "make_request", "make_scheduler", "unsupported_features"]

_RENAMED = {
    "hash_algo": "prefix_caching_hash_algo",
    "max_num_scheduled_tokens": "max_num_batched_tokens",
    "num_blocks": "num_gpu_blocks",
    "spec_method": "method",
}
"""Settings that go by other names in a vector."""
_DRIVING = {"drafts_in_output", "encoder_decoder", "pipeline_parallel_size", "record_events"}
"""Settings that say how the scheduler was driven."""
_DEFAULTS = {"max_num_seqs": 16, "max_num_batched_tokens": 8192, "num_gpu_blocks": 10_000, "block_size": 16}
"""The recorder's."""
_CONFIGS = (SchedulerConfig, CacheConfig, SpeculativeConfig)
_IGNORED = {"log_stats", "scheduler_cls", "model"}
"""Settings that decide nothing."""
_GROUP_KINDS = {
    "full": GroupKind.FULL,
    "swa": GroupKind.SLIDING_WINDOW,
    "chunked": GroupKind.CHUNKED_LOCAL,
    "mamba": GroupKind.MAMBA,
    "cross": GroupKind.CROSS_ATTENTION,
}
_Enum = TypeVar("_Enum", bound=StrEnum)
_HASH_ALGOS = {"sha256": HashAlgo.SHA256, "xxhash": HashAlgo.XXH3_128}


def unsupported_features(header: Header) -> list[str]:
    """Names of the features that the scenario needs and this scheduler lacks; empty if it can be replayed."""
    config = header.config
    found = []
    unknown = {str(group["kind"]) for group in _groups(config)} - _GROUP_KINDS.keys()
    if unknown:
        found.append(f"KV groups: {', '.join(sorted(unknown))}")
    if _version(header) not in PROFILES:
        found.append(f"decisions of vLLM {header.vllm}")
    ours = {field.name for each in _CONFIGS for field in fields(each)}
    known = {*ours, *_RENAMED, *_DRIVING, *_IGNORED}
    found += [f"setting {key}" for key in sorted(config) if key not in known and config[key] is not None]
    return found


def _version(header: Header) -> str:
    """Name of the profile that the recording version of vLLM asks for; the first vectors did not say."""
    return "0.22" if header.vllm == "unknown" else ".".join(header.vllm.split(".")[:2])


def _groups(config: Json) -> list[Json]:
    return config.get("groups") or [{"kind": "full"}]


def _make_group(group: Json) -> KVCacheGroup:
    return KVCacheGroup(
        kind=_GROUP_KINDS[group["kind"]],
        block_size=group.get("block_size") or 0,
        window=group.get("window") or 0,
        is_eagle=bool(group.get("eagle", False)),
    )


def _member(kind: type[_Enum], field: str, value: object) -> _Enum:
    """The member of that value, or ConfigError."""
    try:
        return kind(str(value))
    except ValueError:
        raise ConfigError(field, value, f"use one of: {', '.join(kind)}") from None


def make_scheduler(header: Header) -> Scheduler:
    """A scheduler with the scenario's configuration, where absent fields take the recorder's defaults."""
    recorded = {key: value for key, value in header.config.items() if value is not None}
    given: dict[str, Any] = _DEFAULTS | recorded
    given.setdefault("max_model_len", given["max_num_batched_tokens"])
    given |= {ours: recorded[theirs] for theirs, ours in _RENAMED.items() if theirs in recorded}
    given["profile"] = profile = PROFILES[_version(header)]
    given["count_common_prefix_blocks"] = profile.reports_common_prefix
    given["groups"] = tuple(map(_make_group, _groups(recorded)))
    given["prefix_caching_hash_algo"] = _HASH_ALGOS.get(str(recorded.get("hash_algo")), HashAlgo.SHA256)
    given["mamba_cache_mode"] = _member(MambaCacheMode, "mamba_cache_mode", given.get("mamba_cache_mode", "none"))
    given["method"] = _member(SpeculativeMethod, "spec_method", given.get("method", "ngram"))
    has_drafts = bool(given.get("num_speculative_tokens"))
    return Scheduler(
        SchedulerConfig(**settings_for(SchedulerConfig, given)),
        CacheConfig(**settings_for(CacheConfig, given)),
        speculative_config=SpeculativeConfig(**settings_for(SpeculativeConfig, given)) if has_drafts else None,
        log_stats=bool(given.get("record_events")),
    )


class RecordedGrammar:
    """A grammar that allows every token but some, and is compiled when the record says so."""

    def __init__(self, forbids: frozenset[int]) -> None:
        self._forbids = forbids
        self.is_ready = False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if one is forbidden."""
        return self._forbids.isdisjoint(tokens)

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        """Nobody samples by it: what was sampled is recorded."""
        return np.full((1 + len(drafts), 1), -1, np.int32)

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading tokens that are allowed."""
        stop = next((i for i, token in enumerate(tokens) if token in self._forbids), len(tokens))
        return list(tokens[:stop])


def make_request(spec: RequestSpec, *, encoder_decoder: bool = False) -> Request:
    """A request as the scenario describes it; an ``encoder_decoder`` reads its items by cross attention."""
    sampling = SamplingParams(
        max_tokens=spec.max_tokens,
        min_tokens=spec.min_tokens,
        eos_token_id=spec.eos,
        ignore_eos=spec.eos is None,
        stop_token_ids=tuple(spec.stop_token_ids or ()),
        repetition_detection=_repetition(spec),
        skip_reading_prefix_cache=bool(spec.skip_reading_prefix_cache),
    )
    return Request(
        spec.id,
        spec.prompt,
        None if spec.pooling else sampling,
        pooling_params=PoolingParams() if spec.pooling else None,
        resumable=spec.resumable,
        arrival_time=spec.arrival_time,
        priority=spec.priority,
        cache_salt=spec.cache_salt,
        lora_name=f"lora{spec.lora}" if spec.lora else None,
        mm_features=[
            MultiModalItem(
                mm_hash=image.mm_hash,
                offset=image.offset,
                length=image.length,
                is_embed=image.is_embed,
                cross=encoder_decoder,
            )
            for image in spec.mm
        ],
        structured_output=None if spec.forbids is None else RecordedGrammar(spec.forbids),
    )


def _repetition(spec: RequestSpec) -> RepetitionDetectionParams | None:
    if spec.repetition is None:
        return None
    longest, shortest, count = spec.repetition
    return RepetitionDetectionParams(max_pattern_size=longest, min_pattern_size=shortest, min_count=count)
