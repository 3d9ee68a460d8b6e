"""Transfers in flight: loads that requests wait for, and blocks that outlive their request until they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenyard.kv.manager import KVCacheManager
from tokenyard.kv.stats import PrefixCacheStats
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.connector import KVConnector
from tokenyard.sched.output import ConnectorOutput

__all__ = ["Transfers"]


class Transfers:
    """Book-keeping of one connector."""

    def __init__(self, connector: KVConnector, kv: KVCacheManager) -> None:
        self.connector = connector
        self._kv = kv
        self._received: set[str] = set()
        """Loads complete, whose requests have not been looked at since."""
        self._failed: set[str] = set()
        """Loads of which a part failed."""
        self.delayed: dict[str, Request] = {}
        """Ended requests whose blocks are still being read or written."""
        self.stats = PrefixCacheStats()
        """Hits of the connector, in tokens beyond the local hit."""

    def take_stats(self) -> PrefixCacheStats:
        """Hits since the last call."""
        stats, self.stats = self.stats, PrefixCacheStats()
        return stats

    # ---- loads

    def promote(self, request: Request) -> bool:
        """If the request's load is complete, make it ready to be scheduled."""
        if request.request_id not in self._received:
            return False
        self._received.remove(request.request_id)
        computed = request.num_computed_tokens
        if request.request_id in self._failed:
            self._failed.remove(request.request_id)
            if not computed:
                # Nothing valid was loaded: there may be a local hit when it is tried again.
                self._kv.free(request)
        if request.slot >= 0:
            self._kv.publish(request, computed)
            if computed == request.num_tokens:
                # The last token has to be computed again: its logits are needed.
                request.num_computed_tokens = computed - 1
        request.status = RequestStatus.PREEMPTED if request.num_preemptions else RequestStatus.WAITING
        return True

    def report(self, output: ConnectorOutput, requests: Mapping[str, Request]) -> None:
        """Take in what the workers report; frees blocks that nobody needs any more."""
        self.connector.update_connector_output(output)
        for request_id in sorted(output.finished_receiving):
            if request_id in requests:
                self._received.add(request_id)
            else:
                self._free_delayed(request_id)
        for request_id in sorted(output.finished_sending):
            self._free_delayed(request_id)

    def _free_delayed(self, request_id: str) -> None:
        request = self.delayed.pop(request_id, None)
        if request is not None:
            self._kv.free(request)

    # ---- ends

    def keeps_blocks(self, request: Request) -> bool:
        """A request has ended, its status still that of its last moment: True if its blocks must stay for now."""
        loading = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and request.request_id not in self._received
        self._received.discard(request.request_id)
        self._failed.discard(request.request_id)
        needed, _ = self.connector.request_finished(request, self._kv.get_block_ids(request))
        if loading or needed:
            self.delayed[request.request_id] = request
        return loading or needed

    # ---- failures

    def invalidate(
        self,
        invalid: frozenset[int],
        loading: Iterable[Request],
        running: Iterable[Request],
        granted: Mapping[str, int],
    ) -> tuple[set[Request], set[Request], set[int]]:
        """Rewind every request that relied on a block whose load failed to its longest valid prefix.

        ``granted`` has the tokens of the step just run. Returns affected loading requests, affected running ones, and
        the blocks of the latter that hold nothing valid.
        """
        marked: set[int] = set()
        lost_loading = {request for request in loading if self._rewind(request, invalid, marked, 0) is not None}
        self._failed |= {request.request_id for request in lost_loading}
        marked = set()
        lost_running: set[Request] = set()
        bad_blocks: set[int] = set()
        for request in running:
            bad = self._rewind(request, invalid, marked, granted.get(request.request_id, 0))
            if bad is not None:
                lost_running.add(request)
                bad_blocks |= set(bad)
        return lost_loading, lost_running, bad_blocks

    def _rewind(self, request: Request, invalid: frozenset[int], marked: set[int], granted: int) -> list[int] | None:
        """Set computed tokens back to before the first invalid block; returns that block and those after it.

        A block shared with a request that was rewound before this one will be computed by that request: it counts as
        valid here. None if the request is not affected.
        """
        size = self._kv.config.block_size
        blocks = self._kv.get_block_ids(request)[0]
        computed = request.num_computed_tokens - granted
        hit = [i for i in range(-(-computed // size)) if blocks[i] in invalid]
        if not hit:
            return None
        own = [i for i in hit if blocks[i] not in marked]
        marked.update(blocks[i] for i in hit)
        request.num_computed_tokens = own[0] * size if own else computed
        return blocks[own[0] :] if own else []
