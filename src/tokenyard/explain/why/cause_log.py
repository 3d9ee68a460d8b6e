"""Why requests waited, moment by moment: kept once for all of them, and looked up for one when asked for.

    shared    since when      | kv_blocks, behind a ..... | max_num_seqs, all ..... |      of all requests that wait
    named     of request a    | kv_blocks, its own ... |                                   but for these

A step's causes hold until the next step is decided. Nearly all requests that wait share one cause, so a step costs a
comparison or two however long the queue is. The rule is that of :mod:`tokenyard.explain.why.waits`, which reads traces.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from tokenyard.trace.held_back import Cause, HeldBack
from tokenyard.trace.schema import AdmissionOutcome, KVNumbers
from tokenyard.vocabulary import Place


class WaitPiece(msgspec.Struct, frozen=True):
    """A stretch of a wait with one cause; moments in microseconds."""

    cause: Cause
    start_us: int
    end_us: int
    head: str | None = None
    """The request at the head of the queue that was refused, if it stood behind one."""
    kv: KVNumbers | None = None
    """Numbers of the last refusal."""
    smallest_need: int | None = None
    detail: str | None = None


class _CauseSince:
    """A cause since a moment, with the numbers of the last refusal for it."""

    __slots__ = ("cause", "detail", "end_us", "head", "kv", "smallest_need", "start_us")

    def __init__(self, start_us: int, cause: Cause, head: str | None) -> None:
        self.start_us = start_us
        self.cause = cause
        self.head = head
        self.end_us: int | None = None
        """None: it still holds."""
        self.kv: KVNumbers | None = None
        self.smallest_need: int | None = None
        self.detail: str | None = None

    def again(self, outcome: AdmissionOutcome | None) -> None:
        if outcome is not None and outcome.reason == self.cause.reason and self.cause.place is not Place.OUTSIDE:
            self.kv, self.smallest_need, self.detail = outcome.kv, outcome.smallest_need, outcome.detail

    def piece(self, start_us: int, end_us: int) -> WaitPiece:
        return WaitPiece(self.cause, start_us, end_us, self.head, self.kv, self.smallest_need, self.detail)


class CauseLog:
    """The causes of one engine's run."""

    def __init__(self) -> None:
        self._shared = [_CauseSince(0, HeldBack().shared, None)]
        self._starts = [0]
        self._named: dict[str, list[_CauseSince]] = {}
        self._open: dict[str, _CauseSince] = {}
        """The requests that the last step named."""

    def decided(self, now_us: int, held: HeldBack, outcome: AdmissionOutcome | None) -> None:
        """A step was decided; ``outcome`` is its record."""
        behind = outcome is not None and held.shared.place is Place.BEHIND
        head = outcome.req_id if outcome is not None and behind else None
        last = self._shared[-1]
        if (last.cause, last.head) != (held.shared, head):
            last = _CauseSince(now_us, held.shared, head)
            if self._starts[-1] == now_us:
                self._shared[-1] = last
            else:
                self._shared.append(last)
                self._starts.append(now_us)
        last.again(outcome)
        if self._open or held.named:
            self._name(now_us, held.named, outcome)

    def _name(self, now_us: int, named: dict[str, Cause], outcome: AdmissionOutcome | None) -> None:
        for request_id, last in list(self._open.items()):
            if named.get(request_id) != last.cause:
                last.end_us = now_us
                del self._open[request_id]
        for request_id, cause in named.items():
            since = self._open.get(request_id)
            if since is None:
                since = self._open[request_id] = _CauseSince(now_us, cause, None)
                self._named.setdefault(request_id, []).append(since)
            if outcome is not None and outcome.req_id == request_id:
                since.again(outcome)

    def pieces(self, request_id: str, start_us: int, end_us: int) -> list[WaitPiece]:
        """What a wait of the request from ``start_us`` to ``end_us`` is made of, in order of time."""
        found: list[WaitPiece] = []
        at = start_us
        for since in self._named.get(request_id, ()):
            begin, end = max(since.start_us, at), end_us if since.end_us is None else min(since.end_us, end_us)
            if end <= begin:
                continue
            found += self._of_all(at, begin)
            found.append(since.piece(begin, end))
            at = end
        found += self._of_all(at, end_us)
        return found

    def _of_all(self, start_us: int, end_us: int) -> list[WaitPiece]:
        """The shared causes of that time."""
        found: list[WaitPiece] = []
        i = max(bisect_right(self._starts, start_us) - 1, 0)
        while start_us < end_us:
            until = self._starts[i + 1] if i + 1 < len(self._starts) else end_us
            end = min(until, end_us)
            if end > start_us:
                found.append(self._shared[i].piece(start_us, end))
            start_us, i = max(end, start_us), i + 1
        return found
