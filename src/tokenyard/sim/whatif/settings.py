"""What may be changed in a what-if: settings by vLLM's names, applied to the run that was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import msgspec

from tokenyard.config import CacheConfig, GroupKind, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.launch.names import OTHER_NAMES, setting_name
from tokenyard.policies.named import policy_maker
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.sweep.values import quoted, read_values
from tokenyard.sim.transfers.offload import KVTransfer
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.workload.record import Workload

__all__ = [
    "CHANGEABLE",
    "FLAGS",
    "Variant",
    "as_it_was",
    "check_longest",
    "check_prefixes",
    "each_of",
    "read_variant",
    "split_settings",
    "variant_with",
]

FLAGS = {name: OTHER_NAMES[name] for name in ("num_gpu_blocks", "policy")}
"""Field of a configuration -> vLLM's flag, where they are called otherwise."""
_FIELDS = {flag: name for name, flag in FLAGS.items()}
_NOT_VLLMS = {"skip_oversized_prefill", "rolled_back_work_stays_cached"}
_SCHEDULER = (
    *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "policy", "enable_chunked_prefill"),
    *("long_prefill_token_threshold", "scheduler_reserve_full_isl", "async_scheduling", "max_loras"),
    *("disable_chunked_mm_input", "skip_oversized_prefill", "rolled_back_work_stays_cached"),
)
_CACHE = ("num_gpu_blocks", "block_size", "enable_prefix_caching", "watermark")
_LOAD = ("rate_scale", "max_concurrency")
CHANGEABLE = tuple(sorted(FLAGS.get(name, name) for name in (*_SCHEDULER, *_CACHE, *_LOAD)))
"""Names that ``read_variant`` takes; with dashes as well."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A recorded run with other settings."""

    name: str
    workload: Workload
    scheduler: SchedulerConfig
    cache: CacheConfig
    flags: tuple[str, ...]
    """Of ``vllm serve``, that the changes are made by."""
    is_vllms: bool
    """Whether vLLM has a flag for each of the changes to the engine."""
    keeps_time: bool
    """Whether requests arrive when they did: only then is it known how fast the machine was."""
    latency: LatencyModel
    extremes: tuple[LatencyModel, LatencyModel] | None = None
    """Where ``latency`` is modelled: as short, and as long, as steps may be by what is known of the model's error."""
    speculation: SimulatedSpeculation | None
    kv_transfer: KVTransfer | None = None
    """KV kept elsewhere too."""
    notes: tuple[str, ...] = ()
    """Sentences on what the answer rests on besides the trace."""


def as_it_was(run: RecordedRun) -> Variant:
    """The run with its own settings."""
    return Variant(
        name="as it was",
        workload=run.workload,
        scheduler=run.scheduler,
        cache=run.cache,
        flags=(),
        is_vllms=True,
        keeps_time=True,
        latency=run.latency,
        speculation=run.speculation,
    )


def read_variant(run: RecordedRun, text: str) -> Variant:
    """``run`` with the settings of ``text``: ``max_num_seqs=512`` or several, with commas between them.

    Raises ConfigError naming the setting that is unknown, or cannot have that value.
    """
    return variant_with(run, split_settings(text), text)


def variant_with(run: RecordedRun, settings: Mapping[str, Any], name: str) -> Variant:
    """``run`` with other settings, by vLLM's names or those of the configurations, and ``name`` for what comes of it.

    Raises ConfigError naming the setting that is unknown, or cannot have that value.
    """
    given = {_FIELDS.get(own, own): value for own, value in settings.items()}
    for own in given:
        if own not in (*_SCHEDULER, *_CACHE, *_LOAD):
            raise ConfigError("set", own, f"use one of: {', '.join(CHANGEABLE)}", code="unknown_setting")
    return _variant(run, given, name)


def _variant(run: RecordedRun, given: Mapping[str, Any], text: str) -> Variant:
    scheduler = _changed(run.scheduler, SchedulerConfig, given, _SCHEDULER)
    cache = _with_block_size(
        run.cache, _changed(run.cache, CacheConfig, given, _CACHE), counts="num_gpu_blocks" in given
    )
    if "policy" in given:
        policy_maker(scheduler.policy, "scheduling_policy")
    check_prefixes(run.cache, cache)
    check_longest(run, scheduler, cache)
    workload = run.workload
    if "rate_scale" in given:
        workload = workload.with_rate(_number(given["rate_scale"], float, "rate_scale"))
    if "max_concurrency" in given:
        workload = workload.with_max_concurrency(_number(given["max_concurrency"], int, "max_concurrency"))
    engine = {name: value for name, value in given.items() if name not in _LOAD}
    return Variant(
        name=text,
        workload=workload,
        scheduler=scheduler,
        cache=cache,
        flags=tuple(word for name in engine for word in _flag(name, scheduler, cache)),
        is_vllms=not any(name in _NOT_VLLMS for name in engine) and scheduler.policy in ("fcfs", "priority"),
        keeps_time="rate_scale" not in given,
        latency=run.latency,
        speculation=run.speculation,
    )


def each_of(text: str) -> list[str]:
    """Texts of single variants, for :func:`read_variant`: each combination of the values that ``text`` names.

    ``max_num_seqs=64,128,rate_scale=2`` is two of them. Raises ConfigError.
    """
    named = read_values(text, "set")
    return [
        ",".join(f"{name}={quoted(value)}" for name, value in zip(named, values, strict=True))
        for values in product(*named.values())
    ]


def split_settings(text: str) -> dict[str, str]:
    """The settings of a text by our names, with their values; any name will do. Raises ConfigError."""
    found: dict[str, str] = {}
    for given, values in read_values(text, "set").items():
        name = setting_name(given)
        name = _FIELDS.get(name, name)
        if len(values) > 1:
            raise ConfigError("set", text, f"{given} has several values: a variant has one of each setting")
        if name in found:
            raise ConfigError("set", text, f"{name} is given twice: give it once")
        found[name] = values[0]
    return found


def _changed(config: Any, kind: type, given: Mapping[str, Any], names: Sequence[str]) -> Any:
    """``config`` with those of the given settings that are its own."""
    types = {field.name: field.type for field in fields(kind)}
    changes = {
        name: _number(value, _KINDS[str(types[name])], FLAGS.get(name, name))
        for name, value in given.items()
        if name in names
    }
    return replace(config, **changes) if changes else config


_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def _number(text: Any, kind: type, name: str) -> Any:
    try:
        return msgspec.convert(text.lower() if kind is bool and isinstance(text, str) else text, kind, strict=False)
    except msgspec.ValidationError:
        said = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "a text")
        raise ConfigError(name, text, f"give {said}") from None


def _with_block_size(recorded: CacheConfig, cache: CacheConfig, *, counts: bool) -> CacheConfig:
    """``cache`` with a changed block size for its groups as well, in the same memory unless somebody ``counts`` blocks.

    ConfigError where the groups' sizes differ.
    """
    if cache.block_size == recorded.block_size:
        return cache
    sizes = {group.block_size or recorded.block_size for group in recorded.groups}
    if sizes != {recorded.block_size}:
        fix = f"the groups of this model have blocks of {', '.join(map(str, sorted(sizes)))} tokens: leave it as it is"
        raise ConfigError("block_size", cache.block_size, fix)
    blocks = cache.num_gpu_blocks if counts else recorded.num_gpu_blocks * recorded.block_size // cache.block_size
    groups = tuple(replace(group, block_size=0) for group in cache.groups)
    return replace(cache, groups=groups, num_gpu_blocks=blocks)


def check_prefixes(recorded: CacheConfig, cache: CacheConfig) -> None:
    """ConfigError where the trace does not know which prompts begin alike."""
    if cache.enable_prefix_caching and not recorded.enable_prefix_caching:
        fix = "it was off in the trace, so nobody knows which prompts begin alike: record one with it on"
        raise ConfigError("enable_prefix_caching", value=True, fix=fix)


def check_longest(run: RecordedRun, scheduler: SchedulerConfig, cache: CacheConfig) -> None:
    """ConfigError where blocks or lengths were changed so that vLLM would not start.

    A request of ``max_model_len`` tokens must fit; groups that forget (windows, states) are counted as nothing.
    """
    longest, blocks, size = scheduler.max_model_len, cache.num_gpu_blocks, cache.block_size
    if (longest, blocks, size) == (run.scheduler.max_model_len, run.cache.num_gpu_blocks, run.cache.block_size):
        return
    sizes = zip(cache.groups, cache.group_block_sizes, strict=True)
    needed = 1 + sum(-(-longest // each) for group, each in sizes if group.kind is GroupKind.FULL)
    if blocks < needed:
        fix = (
            f"vLLM would not start: a request of max_model_len = {longest:,} tokens takes {needed - 1:,} blocks, and"
            f" one block is never given out: give at least {needed:,} blocks, or a smaller max_model_len"
        )
        raise ConfigError("num_gpu_blocks_override", blocks, fix)


def _flag(name: str, scheduler: SchedulerConfig, cache: CacheConfig) -> list[str]:
    """The words by which ``vllm serve`` is told."""
    value = getattr(scheduler if name in _SCHEDULER else cache, name)
    flag = FLAGS.get(name, name).replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
