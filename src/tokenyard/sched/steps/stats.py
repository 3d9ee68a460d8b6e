"""What a scheduler reports after every step, under vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from tokenyard.columns import IntArray
from tokenyard.kv.stats import PrefixCacheStats

__all__ = ["SchedulerStats", "SpecDecodingStats"]


class SpecDecodingStats:
    """Acceptance of drafts since the last report."""

    __slots__ = (
        "num_accepted_tokens",
        "num_accepted_tokens_per_pos",
        "num_draft_tokens",
        "num_draft_tokens_per_pos",
        "num_drafts",
    )

    def __init__(self, num_speculative_tokens: int) -> None:
        self.num_drafts = self.num_draft_tokens = self.num_accepted_tokens = 0
        self.num_accepted_tokens_per_pos: IntArray = np.zeros(num_speculative_tokens, np.int64)
        """How often the draft at this position was accepted."""
        self.num_draft_tokens_per_pos: IntArray = np.zeros(num_speculative_tokens, np.int64)
        """How often there was a draft at this position."""

    def record(self, num_drafted: IntArray, num_accepted: IntArray) -> None:
        """Count verified rows."""
        self.num_drafts += len(num_drafted)
        self.num_draft_tokens += int(num_drafted.sum())
        at_least = self._more_than(num_accepted)
        self.num_accepted_tokens += int(at_least.sum())
        self.num_accepted_tokens_per_pos += at_least
        self.num_draft_tokens_per_pos += self._more_than(num_drafted)

    def _more_than(self, counts: IntArray) -> IntArray:
        """At place p the number of rows that count more than p."""
        rows = np.bincount(counts, minlength=len(self.num_accepted_tokens_per_pos) + 1)
        more: IntArray = rows[::-1].cumsum()[-2::-1]
        return more


class SchedulerStats(msgspec.Struct, frozen=True):
    """Gauges after a step (vLLM's ``SchedulerStats``)."""

    num_running_reqs: int
    num_waiting_reqs: int
    num_skipped_waiting_reqs: int
    kv_cache_usage: float
    prefix_cache_stats: PrefixCacheStats
    spec_decoding_stats: SpecDecodingStats | None = None
    connector_prefix_cache_stats: PrefixCacheStats | None = None
    kv_connector_stats: Mapping[str, int] | None = None
