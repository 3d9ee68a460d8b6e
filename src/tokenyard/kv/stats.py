"""Hit statistics of the prefix cache."""

from __future__ import annotations

__all__ = ["NO_LOOKUPS", "PrefixCacheStats"]


class PrefixCacheStats:
    """Prefix-cache use since the last report, in requests and tokens; preempted requests apart, as in vLLM."""

    __slots__ = ("hits", "preempted_hits", "preempted_queries", "preempted_requests", "queries", "requests", "reset")

    def __init__(self) -> None:
        self.requests = self.queries = self.hits = 0
        self.preempted_requests = self.preempted_queries = self.preempted_hits = 0
        self.reset = False
        """The cache was reset since the last report."""

    @property
    def is_empty(self) -> bool:
        """Nothing has happened."""
        return not (self.requests or self.preempted_requests or self.reset)

    def record(self, num_tokens: int, num_hits: int, *, preempted: bool) -> None:
        """Count one lookup of ``num_tokens`` tokens, ``num_hits`` of them found."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


NO_LOOKUPS = PrefixCacheStats()
"""Reported after nearly every step; nobody counts in it."""
