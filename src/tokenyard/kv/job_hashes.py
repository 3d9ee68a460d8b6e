"""Hashes of a job's last prompt, for the turn that continues it.

An agent sends its whole conversation again with every turn. To compare the bytes of two prompts costs a hundredth of
hashing them: where a prompt begins with the last one of its job, hashing goes on where that one ended. The hashes are
the same either way.

    last turn    [ kept .......................... | rewritten ]
    this turn    [ the same bytes ................ | answer, tool result, new question ... ]
                   hashes taken over                 hashed
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from tokenyard.prefix_hash import PrefixHash
from tokenyard.request import Request

__all__ = ["REWRITTEN_TOKENS", "Turn", "Turns"]

REWRITTEN_TOKENS = 256
"""Tokens at the end of a prompt that the next turn may not repeat: chat templates end a prompt with what opens the
answer, and recorded traces end in a block that is not full."""

_TOKEN_BYTES = 4
_MOST_BYTES = 32 << 20


class Turn(NamedTuple):
    """Full blocks of a prompt: all but the rewritten ones."""

    tokens: bytes
    """Their token ids, int32."""
    hashes: list[bytes]
    prefix: PrefixHash
    """As it was behind the last of them."""


class Turns:
    """The last prompt of each job, for requests whose hashes depend on nothing but tokens.

    Keeps at most ``most_bytes`` of token ids (the hashes take about as much again), and forgets the job first that was
    quiet for longest.
    """

    __slots__ = ("_by_job", "_most_bytes", "_num_bytes")

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._num_bytes = 0
        self._by_job: OrderedDict[str, Turn] = OrderedDict()

    def __len__(self) -> int:
        """Jobs it knows."""
        return len(self._by_job)

    def begun_by(self, request: Request, job_id: str) -> Turn | None:
        """The job's last turn, if the request begins with all of it."""
        turn = self._by_job.get(job_id)
        if turn is None or request.token_bytes(0, len(turn.tokens) // _TOKEN_BYTES) != turn.tokens:
            return None
        self._by_job.move_to_end(job_id)
        return turn

    def remember(self, job_id: str, turn: Turn) -> None:
        """Keep a job's newest turn in place of the one before."""
        old = self._by_job.pop(job_id, None)
        self._num_bytes += len(turn.tokens) - (len(old.tokens) if old is not None else 0)
        self._by_job[job_id] = turn
        while self._num_bytes > self._most_bytes:
            _, forgotten = self._by_job.popitem(last=False)
            self._num_bytes -= len(forgotten.tokens)
