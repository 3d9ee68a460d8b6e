"""How many blocks a request can need, counted position by position, without the scheduler's own arithmetic.

Only settings as a user gives them are read. A step computes positions ``first..stop-1``; each group then needs a place
for every position that these attend to, and for the lookahead slots behind them:

    full attention     0 ........................ stop + lookahead
    sliding window     first - window + 1 ....... stop + lookahead
    chunked local      beginning of first's chunk  stop + lookahead
    state (Mamba)      the state before first .... stop + lookahead, and a state of its own for every draft
    cross attention    what the encoder has read, whatever the step

A block is needed if any of its positions is; that is counted by walking over the positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
)
from tokenyard.core.request import Request

__all__ = ["Need", "blocks_needed", "has_room_to_answer", "must_be_accepted", "must_be_refused"]

_METHODS_WITH_KV = {"eagle", "draft_model"}
"""Their drafts have KV of their own, which is written one step ahead."""


class Need(NamedTuple):
    """Blocks of one request, over all groups."""

    least: int
    """With fewer it cannot even be served alone, a step as large as the budget allows after the other."""
    most: int
    """With so many it can be served from wherever preemptions, hits and other requests have left it."""


class _Course(NamedTuple):
    """What bounds the steps of a request."""

    prompt: int
    total: int
    """Positions that are computed: the last sampled token is not."""
    limit: int
    budget: int
    slice: int
    """Most prompt tokens in a step."""
    drafts: int
    ahead: int

    def alone(self) -> Iterator[tuple[int, int]]:
        """The steps of a request that has everything for itself: its prompt, then token by token."""
        first = 0
        while first < self.prompt:
            stop = min(first + self.slice, self.prompt)
            yield first, stop
            first = stop
        for first in range(self.prompt, self.total):
            yield first, first + 1

    def anyhow(self) -> Iterator[tuple[int, int]]:
        """The largest step from every position."""
        for first in range(self.total):
            yield first, min(first + self.budget, self.total)


def blocks_needed(
    request: Request, config: SchedulerConfig, cache: CacheConfig, speculative: SpeculativeConfig | None
) -> Need:
    """Blocks that a request can need on its way from nothing to its ``max_tokens``."""
    course = _course(request, config, speculative)
    heard = sum(sum(item.is_embed) if item.is_embed else item.length for item in request.mm_features if item.cross)
    alone, anyhow = list(course.alone()), list(course.anyhow())
    least = max(sum(_fewest(group, step, course, cache, heard) for group in cache.groups) for step in alone)
    most = sum(
        _most_of_group(group, anyhow, course, cache, heard, gate=config.scheduler_reserve_full_isl)
        for group in cache.groups
    )
    return Need(least, most)


def _course(request: Request, config: SchedulerConfig, speculative: SpeculativeConfig | None) -> _Course:
    prompt, limit, budget = len(request.prompt_token_ids), config.max_model_len, config.max_num_batched_tokens
    drafts = speculative.num_speculative_tokens if speculative else 0
    return _Course(
        prompt=prompt,
        total=min(prompt + request.sampling_params.max_tokens, limit) - 1,
        limit=limit,
        budget=budget,
        slice=min(budget, config.long_prefill_token_threshold or budget),
        drafts=drafts,
        ahead=drafts if speculative and str(speculative.method) in _METHODS_WITH_KV else 0,
    )


def _tokens_per_block(group: KVCacheGroup, cache: CacheConfig) -> int:
    return (group.block_size or cache.block_size) * (
        cache.decode_context_parallel_size * cache.prefill_context_parallel_size
    )


def _blocks(first: int, stop: int, size: int) -> int:
    """Blocks with a position of ``first..stop-1``."""
    return len({position // size for position in range(max(first, 0), stop)})


def _fewest(group: KVCacheGroup, step: tuple[int, int], course: _Course, cache: CacheConfig, heard: int) -> int:
    """Blocks of ``group`` without which this step cannot be made."""
    size, (first, stop) = _tokens_per_block(group, cache), step
    if group.kind is GroupKind.CROSS_ATTENTION:
        return _blocks(0, heard, size)
    if group.kind is GroupKind.MAMBA and cache.mamba_cache_mode is MambaCacheMode.ALIGN:
        return 1 + course.drafts  # the state that is written
    reach = min(stop + course.ahead, course.limit)
    if group.kind is GroupKind.MAMBA:
        return _blocks(first - 1, reach, size) + course.drafts
    if group.kind is GroupKind.FULL:
        return _blocks(0, reach, size)
    if group.kind is GroupKind.SLIDING_WINDOW:
        return _blocks(first - group.window + 1, reach, size)
    assert group.kind is GroupKind.CHUNKED_LOCAL
    return _blocks(first - first % group.window, reach, size)


def _most_of_group(
    group: KVCacheGroup, steps: list[tuple[int, int]], course: _Course, cache: CacheConfig, heard: int, *, gate: bool
) -> int:
    """Blocks of ``group`` with which every one of ``steps`` can be made, and which its admission finds enough.

    The gate that asks for a whole sequence knows nothing of states that are forgotten, and rounds what a window
    needs up by a block.
    """
    size = _tokens_per_block(group, cache)
    whole = _blocks(0, min(course.total + course.ahead, course.limit), size)
    if group.kind is GroupKind.MAMBA:
        whole += course.drafts
        if gate:
            return whole
        if cache.mamba_cache_mode is MambaCacheMode.ALIGN:
            # Read and written state; with drafts those between the last token that is certain and the last that is not.
            certain = 3 * course.drafts + 2
            return min(whole, course.drafts + max(2, 1 + _blocks(1, 1 + certain, size)))
        # States stay until it is certain that no draft was wrong, which is one step later.
        steps = [(first - course.drafts, stop) for first, stop in steps]
    worst = max(_fewest(group, step, course, cache, heard) for step in steps)
    if group.kind is GroupKind.CROSS_ATTENTION:
        return worst
    rounded_up = group.kind in (GroupKind.SLIDING_WINDOW, GroupKind.CHUNKED_LOCAL)
    return min(worst + rounded_up, whole)


def has_room_to_answer(request: Request, config: SchedulerConfig) -> bool:
    """Whether its prompt leaves room for an answer, and for one as long as it insists on."""
    room = config.max_model_len - len(request.prompt_token_ids)
    return room > 0 and request.sampling_params.min_tokens <= room


def must_be_accepted(
    request: Request, config: SchedulerConfig, cache: CacheConfig, speculative: SpeculativeConfig | None
) -> bool:
    """Whether memory (all but the null block) is enough for it, come what may; encoder budgets are not looked at."""
    if not has_room_to_answer(request, config):
        return False
    return blocks_needed(request, config, cache, speculative).most < cache.num_gpu_blocks


def must_be_refused(
    request: Request, config: SchedulerConfig, cache: CacheConfig, speculative: SpeculativeConfig | None
) -> bool:
    """Whether it can come to need more than there is, even alone."""
    if not has_room_to_answer(request, config):
        return True
    return blocks_needed(request, config, cache, speculative).least >= cache.num_gpu_blocks
