"""The hash that runs along a request's blocks."""

from __future__ import annotations

from typing import Protocol, Self

__all__ = ["HashState", "PrefixHash", "framed"]

_COUNT_BYTES = 4


class HashState(Protocol):
    """What the hash libraries give: an object that goes on after each digest."""

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...

    def copy(self) -> Self: ...


def framed(keys: bytes) -> bytes:
    """Extra keys as they stand behind tokens; nothing if they are empty."""
    return b"\xff" * _COUNT_BYTES + len(keys).to_bytes(_COUNT_BYTES, "little") + keys if keys else b""


class PrefixHash:
    """Everything hashed of one request so far, in the order of its blocks.

    A block enters as the int32 values of its tokens. If it has extra keys, then -1, their length and their bytes
    follow: no token is negative, so two different prefixes never give the same stream. ``update`` and ``digest`` are
    the hash object's own methods, because a block costs little more than the two calls.
    """

    __slots__ = ("_state", "digest", "extra_keys", "update")

    def __init__(self, state: HashState) -> None:
        """``state`` has the root in it."""
        self._state = state
        self.update = state.update
        self.digest = state.digest
        self.extra_keys: dict[int, bytes] = {}
        """Extra keys by block number, as they were when the block was hashed."""

    def digest_with(self, data: bytes) -> bytes:
        """The digest as it would be with ``data`` behind it; the hash goes on without."""
        ahead = self._state.copy()
        ahead.update(data)
        return ahead.digest()

    def fork(self) -> PrefixHash:
        """The same again, to go on in another request; it must have no extra keys so far."""
        assert not self.extra_keys, "extra keys belong to one request"
        return PrefixHash(self._state.copy())

    def add_keys(self, block: int, keys: bytes) -> None:
        """Continue behind the tokens of block number ``block`` with its extra keys, unless they are empty."""
        if keys:
            self.extra_keys[block] = keys
            self.update(framed(keys))
