"""The configuration that a trace names, as the scheduler takes it; vLLM's as well, written by our classes inside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import msgspec

from tokenyard.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.errors import ConfigError, NotModelledError, TraceError, shown
from tokenyard.launch.speculation import read_speculation
from tokenyard.profiles import decision_profile
from tokenyard.trace.format.deployment import deployment_of
from tokenyard.trace.format.schema import TraceStart
from tokenyard.vocabulary.policy_names import known_policies

__all__ = ["RecordedConfig", "nearest_version", "recorded_config"]

_VLLM = "vllm"
_Config = TypeVar("_Config", SchedulerConfig, CacheConfig)
_NOT_OURS = {"profile", "groups", "prefix_caching_hash_algo", "hash_seed", "enable_kv_cache_events"}
"""Fields that vLLM's configuration has under the same names with other values, or that decide nothing in a replay."""
_OF_THE_CACHE = ("prefix_cache_retention_interval",)
"""Switches of a profile that vLLM's KV cache is configured with."""
_ONE_POOL = ("FullAttentionSpec", "MLAAttentionSpec", "TQFullAttentionSpec")


class RecordedConfig(NamedTuple):
    """What a replay is configured with."""

    scheduler: SchedulerConfig
    cache: CacheConfig
    speculative: SpeculativeConfig | None


def recorded_config(start: TraceStart | None, source: str) -> RecordedConfig:
    """The configuration of the run. Raises TraceError if the trace does not name it, or it cannot be replayed."""
    config = start.config if start is not None else None
    if start is None or not config or "scheduler" not in config or "cache" not in config:
        raise TraceError(f"{source}: does not say how its scheduler was configured: only tokenyard's own traces do")
    _refuse(config, source)
    limits, cache = _section(config, "scheduler", source), _section(config, "cache", source)
    if start.host == _VLLM:
        limits, cache = _from_vllm(start, config, limits, cache, source)
    return RecordedConfig(
        _converted(limits, SchedulerConfig, source),
        _converted(cache, CacheConfig, source),
        _speculative(config, source),
    )


def _section(config: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    """A section of the configuration; empty if there is none."""
    section = config.get(name)
    if not isinstance(section, dict | None):
        raise TraceError(f"{source}: its configuration cannot be used: {name} = {shown(section)} is no section")
    return dict(section or {})


def _refuse(config: Mapping[str, Any], source: str) -> None:
    """TraceError for what a replay of one engine does not repeat."""
    connector = _section(config, "kv_transfer", source).get("kv_connector")
    if connector:
        raise TraceError(f"{source}: its engine kept KV elsewhere ({shown(connector)}), which is not replayed")
    size = _section(config, "parallel", source).get("data_parallel_size") or 1
    if size != 1:
        raise TraceError(f"{source}: is of one of {shown(size)} data-parallel engines, which are not replayed")


def _from_vllm(
    start: TraceStart, config: dict[str, Any], limits: dict[str, Any], cache: dict[str, Any], source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings that vLLM has under the same names, with what it keeps elsewhere."""
    deployment = deployment_of(config)
    version = deployment.vllm_version or ""
    known = {name: value for name, value in limits.items() if name not in _NOT_OURS}
    known["profile"] = _profile_of(version) | {name: cache[name] for name in _OF_THE_CACHE if name in cache}
    policy = start.policy or ""
    if policy in known_policies():
        known["policy"] = policy
    known["pipeline_parallel_size"] = deployment.pipeline_parallel_size or 1
    ours = {name: value for name, value in cache.items() if name not in _NOT_OURS and value is not None}
    groups = cache.get("groups")
    if isinstance(groups, list):
        ours["groups"] = groups
    elif len(deployment.kv_groups) != 1 or not any(kind in deployment.kv_groups[0] for kind in _ONE_POOL):
        kinds = "; ".join(deployment.kv_groups) or "no group at all"
        raise TraceError(f"{source}: does not say enough of its KV-cache groups ({kinds}) to replay it")
    if not ours.get("enable_prefix_caching") or "groups" not in ours:
        ours.pop("mamba_cache_mode", None)
    parallel = _section(config, "parallel", source)
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        ours[name] = parallel.get(name) or 1
    return known, ours


def nearest_version(version: str) -> str:
    """The version that we know whose decisions that version of vLLM takes."""
    try:
        minor = tuple(int(part) for part in version.partition("+")[0].split(".")[:2])
    except ValueError:
        minor = (0, 33)
    return "0.22" if minor < (0, 23) else "0.33"


def _profile_of(version: str) -> dict[str, Any]:
    """Switches of the profile whose decisions that version of vLLM takes."""
    profile = decision_profile(nearest_version(version))
    return {field.name: getattr(profile, field.name) for field in fields(profile)}


def _converted(settings: Mapping[str, Any], config: type[_Config], source: str) -> _Config:
    known = {field.name for field in fields(config)}
    try:
        return msgspec.convert({name: value for name, value in settings.items() if name in known}, config, strict=False)
    except (msgspec.ValidationError, ConfigError) as error:
        raise TraceError(f"{source}: its configuration cannot be used: {error}") from None


def _speculative(config: Mapping[str, Any], source: str) -> SpeculativeConfig | None:
    section = _section(config, "speculation", source)
    text, method, count = section.get("speculative_config"), section.get("spec_method"), section.get("spec_tokens")
    if text is None and count is None:
        method = method or section.get("method") or section.get("speculative_method")
        count = section.get("num_speculative_tokens")
        if count is None:
            return None
    try:
        asked = read_speculation(text, method=method, num_tokens=count)
    except (ConfigError, NotModelledError) as error:
        raise TraceError(f"{source}: its speculative decoding cannot be replayed: {error}") from None
    return None if asked is None else asked.config
