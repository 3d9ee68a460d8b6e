"""Our statistics as vLLM's, for its log lines and its metrics."""

from __future__ import annotations

from typing import Any

from vllm.v1.metrics import stats as theirs
from vllm.v1.spec_decode import metrics as their_drafts

from tokenyard.kv.manager import KVCacheManager
from tokenyard.kv.new_blocks import Blocks
from tokenyard.kv.stats import NO_LOOKUPS, PrefixCacheStats
from tokenyard.sched.steps.stats import SchedulerStats, SpecDecodingStats
from tokenyard.vllm import versions
from tokenyard.vllm.fast.requests import FastRequest

__all__ = ["FirstOutput", "num_cached", "translated_stats"]


def translated_stats(ours: SchedulerStats, cudagraph: Any = None) -> Any:
    """vLLM's ``SchedulerStats``."""
    return theirs.SchedulerStats(
        num_running_reqs=ours.num_running_reqs,
        num_waiting_reqs=ours.num_waiting_reqs,
        num_skipped_waiting_reqs=ours.num_skipped_waiting_reqs,
        kv_cache_usage=ours.kv_cache_usage,
        prefix_cache_stats=_lookups(ours.prefix_cache_stats),
        spec_decoding_stats=_drafts(ours.spec_decoding_stats),
        cudagraph_stats=cudagraph,
        **versions.stats_without_connector(),
    )


def _lookups(ours: PrefixCacheStats) -> Any:
    made = theirs.PrefixCacheStats()
    if ours is not NO_LOOKUPS:
        for name in PrefixCacheStats.__slots__:
            setattr(made, name, getattr(ours, name))
    return made


def _drafts(ours: SpecDecodingStats | None) -> Any:
    if ours is None or not ours.num_drafts:
        return None
    made = their_drafts.SpecDecodingStats.new(len(ours.num_accepted_tokens_per_pos))
    made.num_drafts = ours.num_drafts
    made.num_draft_tokens = ours.num_draft_tokens
    made.num_accepted_tokens = ours.num_accepted_tokens
    made.num_accepted_tokens_per_pos = ours.num_accepted_tokens_per_pos.tolist()
    if hasattr(made, "num_draft_tokens_per_pos"):
        made.num_draft_tokens_per_pos = ours.num_draft_tokens_per_pos.tolist()
    return made


class FirstOutput:
    """An admitted request that has had no output so far: its statistics come with the first."""

    __slots__ = ("_held", "_num_preemptions", "num_cached_tokens", "num_prompt_tokens", "request")

    def __init__(self, request: FastRequest, num_cached_tokens: int) -> None:
        self.request = request
        self.num_prompt_tokens = request.num_prompt_tokens
        self.num_cached_tokens = num_cached_tokens
        self._held: Blocks = ()
        self._num_preemptions = 0

    def note_blocks(self, kv: KVCacheManager) -> None:
        """The step that has just been decided brings it: an end gives the blocks back before anybody is told."""
        self._held = kv.get_block_ids(self.request)
        self._num_preemptions = self.request.num_preemptions

    def stats(self, kv: KVCacheManager) -> Any:
        """vLLM's ``PrefillStats``."""
        made = theirs.PrefillStats()
        made.set(
            num_prompt_tokens=self.num_prompt_tokens,
            num_local_cached_tokens=self.num_cached_tokens,
            num_external_cached_tokens=0,
        )
        if hasattr(made, "finalize"):
            made.finalize(self._cached_now(kv))
        return made

    def _cached_now(self, kv: KVCacheManager) -> int:
        """What vLLM counts before it gives the blocks of an ended request back.

        The output itself may have made a block findable. Nobody has taken a block since then.
        """
        request = self.request
        if request.slot >= 0:
            return num_cached(kv, kv.get_block_ids(request))
        ended_running = request.status.is_finished and request.num_preemptions == self._num_preemptions
        return num_cached(kv, self._held) if ended_running else 0


def num_cached(kv: KVCacheManager, held: Blocks) -> int:
    """Tokens up to the last block with cached content, of the KV-cache group with the fewest; ``held`` are per group.

    Content that no lookup finds counts as well.
    """
    found = []
    hash_of, tails = kv.pool.hash_of, kv.pool.prompt_tails
    for group, blocks in zip(kv.coordinator.managers, held, strict=True):
        last = next((i for i in range(len(blocks) - 1, -1, -1) if blocks[i] and hash_of[blocks[i]] is not None), -1)
        found.append(max((last + 1) * group.block_size, *[tails.get(block, 0) for block in blocks if tails], 0))
    return min(found, default=0)
