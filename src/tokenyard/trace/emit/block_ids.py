"""Ids of blocks of tokens: equal where the block and all tokens before it are equal, and saying nothing else.

Ids count up as blocks come, so the blocks of a prompt are a few runs of consecutive ids: what it shares with earlier
prompts, and what is new.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.trace.emit.line_file import Deferred

__all__ = ["BlockIds", "HashedBlocks"]

_GENERATION = 1 << 19
"""Blocks that come before those are forgotten that have not come since; two generations take up to 140 MB."""
_HASH_BYTES = 8
"""Of a hash that are compared: two of a million blocks are confused once in 40 million traces."""


class BlockIds:
    """Numbers hashes of blocks in the order in which they come."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}
        self._next = 0

    def runs(self, hashes: Sequence[bytes]) -> list[int]:
        """The ids of ``hashes`` as runs: first id, how many, first id, how many ..."""
        if len(self._ids) >= _GENERATION:
            self._older, self._ids = self._ids, {}
        runs: list[int] = []
        for each in hashes:
            number = self._number(each[:_HASH_BYTES])
            if runs and runs[-2] + runs[-1] == number:
                runs[-1] += 1
            else:
                runs += (number, 1)
        return runs

    def _number(self, key: bytes) -> int:
        number = self._ids.get(key)
        if number is None:
            number = self._older.pop(key, None)
            if number is None:
                number = self._next
                self._next += 1
            self._ids[key] = number
        return number


class HashedBlocks(Deferred):
    """Blocks of one request, numbered when they are written."""

    def __init__(self, ids: BlockIds, hashes: list[bytes]) -> None:
        """``hashes`` is not changed any more."""
        self._ids = ids
        self._hashes = hashes

    def made(self) -> list[int]:
        return self._ids.runs(self._hashes)
