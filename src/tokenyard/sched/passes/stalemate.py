"""The way out when nothing runs, the head of the queue does not fit, and the missing blocks are held behind it.

Requests can hold blocks while they wait: what a connector has loaded for them, or the history of a session that has got
its next input. vLLM 0.22 stops at the head and never looks at them, and no step changes that (its issues 45388, 57841).
Here they are tried; and if none of them fits beside the others, the last one gives its blocks back and starts anew.

A head that fits in part is not refused: it is admitted, runs alone, lacks a block and preempts itself, in turns for
ever. Once that has happened twice and nothing has changed, it has to fit whole while others hold blocks.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.kv.manager import KVCacheManager
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.features import Features
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.queues.waiting import WaitingQueues

__all__ = ["Stalemate"]


class _Attempt(NamedTuple):
    """How a request that ran alone preempted itself."""

    reach: int
    """Tokens that it needed room for."""
    holders: tuple[str, ...]
    """Waiting requests that held the blocks it lacked."""
    in_vain: bool
    """The time before was the same: so will the next one be."""


class Stalemate:
    """Looks at waiting requests that hold blocks; asked only where memory has refused somebody and nothing runs."""

    def __init__(self, kv: KVCacheManager, room: WaitingQueues, running: RunningList, features: Features) -> None:
        self._kv = kv
        self._waiting_queues = room
        self._running = running
        self._encoder = features.encoder
        self._transfers = features.transfers
        self._attempts: dict[str, _Attempt] = {}
        """Waiting requests that preempted themselves while waiting ones held blocks; the last time of each."""

    def threatens(self, refused: Request) -> bool:
        """Nothing runs, and another request that could go on holds blocks: try it before stopping at ``refused``."""
        return not len(self._running) and any(request is not refused for request in self._holders())

    def preempted_itself(self, request: Request, reach: int) -> None:
        """``request`` needed room for ``reach`` tokens, nobody ran beside it, and it has gone back to the queue."""
        room = self._waiting_queues
        attempts = {rid: attempt for rid, attempt in self._attempts.items() if room.get(rid) is not None}
        holders = tuple(holder.request_id for holder in self._holders())
        if holders and not self._blocks_will_come():
            last = attempts.get(request.request_id)
            in_vain = last is not None and (last.reach, last.holders) == (reach, holders)
            attempts[request.request_id] = _Attempt(reach, holders, in_vain)
        self._attempts = attempts

    def must_fit(self, candidate: Request) -> int:
        """Tokens that need room before it is admitted, after an attempt in vain; 0 if this step's tokens will do."""
        attempt = self._attempts.get(candidate.request_id)
        if attempt is None or not attempt.in_vain or not self.threatens(candidate):
            return 0
        return max(attempt.reach, candidate.num_tokens)

    def resolve(self) -> bool:
        """Nobody could be admitted: the last request that holds blocks gives them back. False if time will help."""
        if len(self._running) or self._blocks_will_come():
            return False
        holders = self._holders()
        if not holders:
            return False
        request = holders[-1]
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and self._transfers is not None:
            self._transfers.promote(request)
        if request.slot >= 0:
            self._kv.free(request)
        if self._encoder is not None:
            self._encoder.cache.free(request)
        request.num_computed_tokens = 0
        return True

    def _holders(self) -> list[Request]:
        """Waiting requests that hold blocks and wait for nothing but their turn."""
        return [request for request in self._waiting_queues if request.slot >= 0 and self._can_go_on(request)]

    def _can_go_on(self, request: Request) -> bool:
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS:
            return self._transfers is not None and self._transfers.has_received(request)
        return not request.status.is_blocked

    def _blocks_will_come(self) -> bool:
        return self._transfers is not None and self._transfers.blocks_will_come(self._waiting_queues)
