"""Flows of tokens to answers: what a step changes in them, so that every pause between two tokens is on record."""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.trace.facts import STEADY, Streams


class TokenStreams:
    """Follows the flows of tokens of one engine; a step that changes none of them costs a comparison."""

    def __init__(self) -> None:
        self._last: Sequence[str] = ()
        """Requests that got tokens in the last step that sampled any."""
        self._flowing: set[str] = set()
        """The same, without those that have ended."""
        self._paused: set[str] = set()
        self._ended: set[str] = set()
        """Requests that ended since then."""

    def step_completed(self, req_ids: Sequence[str]) -> Streams:
        """A step gave tokens to these requests; it changes nothing if there are none."""
        if not req_ids or (req_ids == self._last and not self._ended):
            return STEADY
        now, before, ended = set(req_ids), self._flowing, self._ended
        paused = [each for each in self._last if each in before and each not in now and each not in ended]
        fresh = [each for each in req_ids if each not in before]
        resumed = [each for each in fresh if each in self._paused]
        began = [each for each in fresh if each not in self._paused] if len(resumed) < len(fresh) else []
        self._paused.difference_update(resumed, ended)
        self._paused.update(paused)
        self._last, self._flowing, self._ended = req_ids, now - ended, set()
        return Streams(began, paused, resumed) if fresh or paused else STEADY

    def request_arrived(self, request_id: str) -> None:
        """A request came; one that was called so before is another one."""
        if request_id in self._ended:
            for each in (self._flowing, self._paused, self._ended):
                each.discard(request_id)

    def request_ended(self, request_id: str) -> None:
        """It gets no token after those of the step that is being taken in."""
        self._ended.add(request_id)
