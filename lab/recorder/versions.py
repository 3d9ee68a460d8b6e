"""What the versions of vLLM that can be recorded differ in, for recorder and lockstep: nothing else there asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import vllm
from vllm.config import VllmConfig
from vllm.v1 import kv_cache_interface
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

__all__ = [
    "DECODES_GO_ROUND_STAGES",
    "FILLS_QUEUE_FIRST",
    "HAS_CIRCULAR_BUFFERS",
    "HAS_MAMBA_MODE_ALL",
    "IS_FIRST",
    "KEEPS_LAST_OF_SESSIONS",
    "LOSES_RESET_SESSIONS",
    "MISCOUNTS_STALE_OUTPUTS",
    "PAUSES_COUNT_HOLDERS",
    "RELEASE",
    "VERSION",
    "circular_buffer",
    "complete_cache_config",
    "derived_cache_fields",
    "make_block_hasher",
    "second_queue",
]

RELEASE = vllm.__version__.partition("+")[0]
VERSION = ".".join(RELEASE.split(".")[:2])
"""vLLM's version."""
_NUMBERS = tuple(map(int, VERSION.split(".")))

IS_FIRST = _NUMBERS <= (0, 22)
"""The scenarios aim at 0.22: what they are made to show there a later version may not do, or refuse."""
FILLS_QUEUE_FIRST = DECODES_GO_ROUND_STAGES = _NUMBERS >= (0, 23)
"""The engine takes an output in only when no further step can be scheduled; pipelines have one more in flight."""
MISCOUNTS_STALE_OUTPUTS = _NUMBERS < (0, 27)
"""After a second reset of what runs while outputs of the first are in flight."""
KEEPS_LAST_OF_SESSIONS = _NUMBERS < (0, 33)
"""The last token of an answer, where a step was in flight or a draft accepted beyond it."""
PAUSES_COUNT_HOLDERS = _NUMBERS >= (0, 32)
"""Waiting requests that hold blocks are unfinished while new ones are paused."""
LOSES_RESET_SESSIONS = _NUMBERS < (0, 33)
"""A session that is reset between a step and its output is put back into the queue, then taken off it."""
HAS_MAMBA_MODE_ALL = _NUMBERS < (0, 32)
"""Later versions keep the states of Mamba layers in another mode only, which has conditions of its own."""
HAS_CIRCULAR_BUFFERS = hasattr(kv_cache_interface, "CircularBufferSpec")
"""Groups with one block per request."""

_CACHE_FIELDS = {field.name for field in dataclasses.fields(KVCacheConfig)}


def derived_cache_fields(config: VllmConfig) -> dict[str, Any]:
    """What the planner of the KV cache copies from the configuration."""
    name = "prefix_cache_retention_interval"
    return {name: getattr(config.cache_config, name)} if name in _CACHE_FIELDS else {}


def complete_cache_config(cache: KVCacheConfig, config: VllmConfig, block_size: int, hash_block_size: int) -> None:
    """Enter what is only known when block sizes are."""
    if "hash_block_size" in _CACHE_FIELDS:
        cache.hash_block_size = hash_block_size
    if hasattr(kv_cache_utils, "resolve_cache_hit_alignment_tokens"):
        cache.cache_hit_alignment_tokens = kv_cache_utils.resolve_cache_hit_alignment_tokens(
            cache, config, block_size, hash_block_size
        )


def circular_buffer(**shape: Any) -> KVCacheSpec:
    """The layers that keep a request's last tokens in one block; AttributeError before there were any."""
    spec: KVCacheSpec = kv_cache_interface.CircularBufferSpec(**shape)
    return spec


def make_block_hasher(config: VllmConfig, hash_block_size: int, hash_fn: Callable[[Any], bytes]) -> Callable[..., Any]:
    """The hasher of requests' blocks, which may look ahead."""
    ahead = getattr(config, "num_hash_lookahead_tokens", 0)
    more = (ahead,) if ahead else ()
    hasher: Callable[..., Any] = kv_cache_utils.get_request_block_hasher(hash_block_size, hash_fn, *more)
    return hasher


def second_queue(scheduler: Scheduler) -> Iterable[Any]:
    """Requests looked at before the waiting ones: those that were skipped, or (since 0.31) those that hold blocks."""
    name = "kv_holding_waiting" if hasattr(scheduler, "kv_holding_waiting") else "skipped_waiting"
    queue: Iterable[Any] = getattr(scheduler, name)
    return queue
