"""What may be changed in a what-if: settings by vLLM's names, applied to the run that was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec

from tokenyard.config import CacheConfig, GroupKind, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_maker
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.transfers.offload import KVTransfer
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.workload.record import Workload

__all__ = ["CHANGEABLE", "Variant", "as_it_was", "read_variant"]

_OTHER_NAMES = {"num_gpu_blocks_override": "num_gpu_blocks", "scheduling_policy": "policy"}
"""vLLM's flag -> our setting."""
_FLAGS = {ours: theirs for theirs, ours in _OTHER_NAMES.items()}
_NOT_VLLMS = {"skip_oversized_prefill", "rolled_back_work_stays_cached"}
_SCHEDULER = (
    *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "policy", "enable_chunked_prefill"),
    *("long_prefill_token_threshold", "scheduler_reserve_full_isl", "async_scheduling", "max_loras"),
    *("disable_chunked_mm_input", "skip_oversized_prefill", "rolled_back_work_stays_cached"),
)
_CACHE = ("num_gpu_blocks", "block_size", "enable_prefix_caching", "watermark")
_LOAD = ("rate_scale", "max_concurrency")
CHANGEABLE = tuple(sorted(_FLAGS.get(name, name) for name in (*_SCHEDULER, *_CACHE, *_LOAD)))
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
    given = _given(text)
    scheduler = _changed(run.scheduler, SchedulerConfig, given, _SCHEDULER)
    cache = _with_block_size(
        run.cache, _changed(run.cache, CacheConfig, given, _CACHE), counts="num_gpu_blocks" in given
    )
    if "policy" in given:
        policy_maker(scheduler.policy, "scheduling_policy")
    _check_prefixes(run.cache, cache)
    _check_longest(run, scheduler, cache)
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


def _given(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.strip().partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        name = _OTHER_NAMES.get(name, name)
        if not sign or not value.strip():
            raise ConfigError("set", part, "give NAME=VALUE, or several with commas, for example max_num_seqs=512")
        if name not in (*_SCHEDULER, *_CACHE, *_LOAD):
            raise ConfigError("set", part, f"use one of: {', '.join(CHANGEABLE)}")
        if name in found:
            raise ConfigError("set", text, f"{name} is given twice: give it once")
        found[name] = value.strip()
    return found


def _changed(config: Any, kind: type, given: Mapping[str, str], names: Sequence[str]) -> Any:
    """``config`` with those of the given settings that are its own."""
    types = {field.name: field.type for field in fields(kind)}
    changes = {
        name: _number(value, _KINDS[str(types[name])], _FLAGS.get(name, name))
        for name, value in given.items()
        if name in names
    }
    return replace(config, **changes) if changes else config


_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def _number(text: str, kind: type, name: str) -> Any:
    try:
        return msgspec.convert(text.lower() if kind is bool else text, kind, strict=False)
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


def _check_prefixes(recorded: CacheConfig, cache: CacheConfig) -> None:
    """ConfigError where the trace does not know which prompts begin alike."""
    if cache.enable_prefix_caching and not recorded.enable_prefix_caching:
        fix = "it was off in the trace, so nobody knows which prompts begin alike: record one with it on"
        raise ConfigError("enable_prefix_caching", value=True, fix=fix)


def _check_longest(run: RecordedRun, scheduler: SchedulerConfig, cache: CacheConfig) -> None:
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
    flag = _FLAGS.get(name, name).replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
