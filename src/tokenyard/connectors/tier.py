"""What a place that keeps blocks by their content answers to the scheduler half of a connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tokenyard.connectors.plan import Address
from tokenyard.kv.events import KVEvent

__all__ = ["LookupResult", "Tier"]


class LookupResult(NamedTuple):
    """The answer to a lookup."""

    num_blocks: int
    """Leading blocks that can be loaded."""
    undecided: bool = False
    """The next one is being written: ask again."""


class Tier(Protocol):
    """Keeps blocks by the hash of their content; it moves nothing itself."""

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        """How many of these blocks, from the first on without a gap, are here."""

    def promise(self, hashes: Sequence[bytes]) -> None:
        """Keep these blocks, which are here, until the next call; made for every request that asks, mostly in vain."""

    def hold(self, hashes: Sequence[bytes]) -> None:
        """Keep these blocks, which are here, until they are released as often."""

    def release(self, hashes: Sequence[bytes]) -> None:
        """The opposite of :meth:`hold`."""

    def sources(self, hashes: Sequence[bytes]) -> tuple[Address, ...]:
        """Where held blocks are."""

    def reserve(self, block_hash: bytes) -> Address | None:
        """A place for a block that is to be stored, at the expense of others if need be.

        None: it is here already, or on its way, or there is no place. It can be found once it is complete.
        """

    def complete(self, block_hash: bytes) -> None:
        """A reserved block has been written."""

    def touch(self, hashes: Sequence[bytes]) -> None:
        """These blocks of one chain are used, those of them that are here: the first shall be the last to go."""

    def lost(self, block_hash: bytes) -> None:
        """A held block turned out to be missing or damaged."""

    def reset(self) -> bool:
        """Forget everything; False if something is held or being written, or is not this engine's to forget."""

    def take_events(self) -> Sequence[KVEvent]:
        """What entered and left it since the last call."""

    def take_stats(self) -> Mapping[str, int]:
        """Counts since the last call, in blocks."""

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks, of a tier in CPU memory."""
