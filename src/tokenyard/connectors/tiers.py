"""Places that keep blocks by content: CPU memory with its eviction, and shared storage."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from tokenyard.connectors.ranked import RankedKeys
from tokenyard.core.config import MAX_COUNT, require_int
from tokenyard.core.kv.events import BlockRemoved, BlockStored, KVEvent, short_hash
from tokenyard.core.sched.eviction import EvictionOrder
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.errors import ConfigError

# ---------------------------------------------------------------------------------------------------------------------
# What the scheduler half of a connector asks of its worker half in one step.
#
# Order within a step: saves (what the step would overwrite), blocking loads, the model, stores. Asynchronous loads and
# stores may take any time after their place; a job that is over is named in ``ConnectorOutput.completed_jobs``.

Address = int | bytes
"""Where a block is kept: the number of a block of memory, or the hash of its content."""


class RemoteRequest(msgspec.Struct, frozen=True):
    """A request of another engine, which keeps blocks for this engine to fetch."""

    engine_id: str
    request_id: str


class Load(msgspec.Struct, frozen=True):
    """Fill blocks of the GPU."""

    job_id: int
    request_id: str
    blocks: tuple[int, ...]
    """Blocks of the GPU, in position order."""
    sources: tuple[Address, ...]
    """Where each one's content is."""
    is_async: bool
    """The request waits until ``finished_receiving`` names it; else the load is part of the step."""
    remote: RemoteRequest | None = None
    """The request of another engine that holds the sources, where they are its blocks; it frees them afterwards."""


class Store(msgspec.Struct, frozen=True):
    """Keep a copy of blocks of the GPU."""

    job_id: int
    request_id: str | None
    """An ended request whose blocks stay until ``finished_sending`` names it; None: no request's blocks wait for it."""
    blocks: tuple[int, ...]
    targets: tuple[Address, ...]


class Offer(msgspec.Struct, frozen=True):
    """Blocks of an ended request that another engine may fetch; they stay until ``finished_sending`` names it."""

    request_id: str
    blocks: tuple[int, ...]
    deadline: float
    """When it ends if no engine has claimed it, in seconds on the engine's clock."""


class TransferPlan(NamedTuple):
    """The transfers that begin with one step."""

    saves: tuple[Store, ...] = ()
    """Blocks that this very step gives away: they are read before anything is written."""
    loads: tuple[Load, ...] = ()
    stores: tuple[Store, ...] = ()
    offers: tuple[Offer, ...] = ()
    claims: tuple[RemoteRequest, ...] = ()
    """Offers of others that will be fetched or released: they must not end before."""
    releases: tuple[RemoteRequest, ...] = ()
    """Offers of others that will not be fetched."""

    def __bool__(self) -> bool:
        return any(self)


class ConnectorWorker(Protocol):
    """The half of a connector that moves tensors."""

    def before_step(self, plan: TransferPlan | None) -> None:
        """Before the model runs; on return all saves and blocking loads are complete."""

    def after_step(self, plan: TransferPlan | None) -> None:
        """After the model ran, or would have run if there was nothing to compute: begin the stores."""

    def report(self) -> ConnectorOutput | None:
        """What has ended since the last call; None: nothing."""

    def shutdown(self) -> None:
        """End all transfers and let go of all resources."""


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# What a connector's settings may hold; each check raises ConfigError with field, value and fix.

_HUGE = 1e300
"""Below infinity, which is no amount of anything."""


def require_text(field: str, value: object) -> None:
    """A name of something."""
    if not isinstance(value, str) or not value:
        raise ConfigError(field, value, "give a text that is not empty")


def require_amount(field: str, value: object, *, or_zero: bool = False) -> float:
    """A number above 0 (``or_zero``: from 0) as a float; one that no float can hold is refused as well."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else -1
    if not 0 < number < _HUGE and not (or_zero and number == 0):
        raise ConfigError(field, value, f"give a number {'from' if or_zero else 'above'} 0")
    return float(number)


def check_storage_path(value: object) -> None:
    """``shared_storage_path``: whether it can be written shows when it is used."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError("shared_storage_path", value, "give the path of a folder")


def check_namespace(value: object) -> None:
    """``namespace`` becomes one folder."""
    if not isinstance(value, str) or value in ("", "..") or value != Path(value).name or "\0" in value:
        raise ConfigError("namespace", value, "give a name that is valid for a folder")


# ---------------------------------------------------------------------------------------------------------------------
# What a place that keeps blocks by their content answers to the scheduler half of a connector.


class LookupResult(msgspec.Struct, frozen=True):
    """The answer to a lookup."""

    num_blocks: int
    """Leading blocks that can be loaded."""
    undecided: bool = False
    """The next one is being written: look it up again."""


class Tier(Protocol):
    """Keeps blocks by the hash of their content; it moves nothing itself."""

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        """How many of these blocks, from the first on without a gap, are here."""

    def promise(self, hashes: Sequence[bytes]) -> None:
        """Keep these blocks, which are here, until the next call; made for every request that asks, mostly in vain."""

    def hold(self, hashes: Sequence[bytes]) -> None:
        """Keep these blocks, which are here, until they are released as often."""

    def release(self, hashes: Sequence[bytes]) -> None:
        """Let go of blocks that were held, once for each :meth:`hold`."""

    def sources(self, hashes: Sequence[bytes]) -> tuple[Address, ...]:
        """Where held blocks are."""

    def reserve(self, block_hash: bytes) -> Address | None:
        """A place for a block that is to be stored, at the expense of others if need be.

        None: it is here already, or on its way, or there is no place. It can be found once it is complete.
        """

    def complete(self, block_hash: bytes) -> None:
        """A reserved block has been written."""

    def touch(self, hashes: Sequence[bytes]) -> None:
        """Blocks of one chain are used, those that are here: the first of the chain becomes the last to be evicted."""

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


# ---------------------------------------------------------------------------------------------------------------------
# Which block a full tier gives up: least recently used, or ARC.
#
# ARC follows Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003):
#
#     seen once   B1 (ghosts) | T1    a scan fills this half and nothing else
#     seen again  B2 (ghosts) | T2    what came back
#
# A key that comes back while its ghost is remembered moves the border between the halves towards its own.

IsFree = Callable[[bytes], bool]
"""Whether a key can go: its block is neither read nor written."""


class EvictionPolicy(Protocol):
    """An order over the keys of a tier."""

    def add(self, key: bytes) -> None:
        """A block is stored; the key is not in the tier."""

    def touch(self, key: bytes) -> None:
        """A block that is in the tier is used."""

    def evict(self, is_free: IsFree) -> bytes | None:
        """Take out the key to give up; None if none can go."""

    def discard(self, key: bytes) -> None:
        """A block left the tier for another reason."""

    def clear(self) -> None:
        """Forget everything."""


def _oldest(keys: OrderedDict[bytes, None], is_free: IsFree) -> bytes | None:
    return next((key for key in keys if is_free(key)), None)


class LRU:
    """Least recently used first."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def add(self, key: bytes) -> None:
        self._keys[key] = None

    def touch(self, key: bytes) -> None:
        self._keys.move_to_end(key)

    def evict(self, is_free: IsFree) -> bytes | None:
        key = _oldest(self._keys, is_free)
        if key is not None:
            del self._keys[key]
        return key

    def discard(self, key: bytes) -> None:
        self._keys.pop(key, None)

    def clear(self) -> None:
        self._keys.clear()


class ARC:
    """Recency and frequency, balanced by what comes back."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.t1: OrderedDict[bytes, None] = OrderedDict()
        self.t2: OrderedDict[bytes, None] = OrderedDict()
        self.b1: OrderedDict[bytes, None] = OrderedDict()
        self.b2: OrderedDict[bytes, None] = OrderedDict()
        self.target = 0.0
        """Blocks that T1 should have."""

    def add(self, key: bytes) -> None:
        if key in self.b1:
            self.target = min(self.target + max(1.0, len(self.b2) / len(self.b1)), self._capacity)
            del self.b1[key]
            self.t2[key] = None
        elif key in self.b2:
            self.target = max(self.target - max(1.0, len(self.b1) / len(self.b2)), 0.0)
            del self.b2[key]
            self.t2[key] = None
        else:
            self.t1[key] = None
        self._forget_ghosts()

    def touch(self, key: bytes) -> None:
        self.t1.pop(key, None)
        self.t2[key] = None
        self.t2.move_to_end(key)

    def evict(self, is_free: IsFree) -> bytes | None:
        halves = [(self.t1, self.b1), (self.t2, self.b2)]
        if len(self.t1) <= self.target:
            halves.reverse()
        for here, ghosts in halves:
            key = _oldest(here, is_free)
            if key is not None:
                del here[key]
                ghosts[key] = None
                return key
        return None

    def _forget_ghosts(self) -> None:
        """|T1| + |B1| <= capacity, and all four together at most twice that."""
        while self.b1 and len(self.t1) + len(self.b1) > self._capacity:
            self.b1.popitem(last=False)
        while self.b2 and len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2) > 2 * self._capacity:
            self.b2.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self.t1.pop(key, None)
        self.t2.pop(key, None)

    def clear(self) -> None:
        for keys in (self.t1, self.t2, self.b1, self.b2):
            keys.clear()
        self.target = 0.0


EvictionChoice = str | EvictionOrder | type[EvictionOrder] | Callable[[int], EvictionPolicy]
"""``lru`` or ``arc``, as vLLM's ``eviction_policy`` names them, an order as the GPU's cache takes it, or what makes one
for a number of blocks."""


def make_eviction_policy(choice: EvictionChoice, capacity: int) -> EvictionPolicy:
    """The order of a tier of so many blocks; ConfigError for what makes none."""
    if choice == "lru":
        return LRU()
    if choice == "arc":
        return ARC(capacity)
    if isinstance(choice, EvictionOrder):
        return RankedKeys(choice)
    if isinstance(choice, type) and issubclass(choice, EvictionOrder):
        return RankedKeys(choice())
    methods = ("add", "touch", "evict", "discard", "clear")
    make: Any = choice
    made: Any = make(capacity) if callable(make) else None
    if all(callable(getattr(made, each, None)) for each in methods):
        policy: EvictionPolicy = made
        return policy
    fix = f"use lru or arc, or a class that takes a number of blocks and has {', '.join(methods)}"
    raise ConfigError("eviction_policy", choice, fix)


# ---------------------------------------------------------------------------------------------------------------------
# Blocks in CPU memory, by content: which are there, who uses them, which one goes when it is full.
#
# free -> reserved (being written) -> ready -> evicted when it has no reader

MEDIUM_CPU = "CPU"
"""The medium of its KV events."""


class _Entry:
    """One block of CPU memory with content."""

    __slots__ = ("number", "readers")

    def __init__(self, number: int) -> None:
        self.number = number
        self.readers = 0


class CPUTier:
    """A pool of blocks in CPU memory, numbered from 0."""

    def __init__(self, num_blocks: int, eviction_policy: EvictionChoice = "lru", *, events: bool = False) -> None:
        """``events`` records what enters and leaves. ConfigError if a setting cannot work."""
        require_int("num_cpu_blocks", num_blocks, 1, MAX_COUNT)
        self.num_blocks = num_blocks
        self._order: EvictionPolicy = make_eviction_policy(eviction_policy, num_blocks)
        self._entries: dict[bytes, _Entry] = {}
        self._ready: dict[bytes, _Entry] = {}
        """Entries whose content is complete, so that it can be read."""
        self._promised: Sequence[bytes] = ()
        self._promised_set: frozenset[bytes] | None = frozenset()
        """The promised ones as a set; None until it is needed."""
        self._free: list[int] = []
        self._num_touched = 0
        """Blocks that have ever been used: the others need no list."""
        self._events: list[KVEvent] | None = [] if events else None
        self._hits = self._stored = self._evicted = 0

    def __contains__(self, block_hash: object) -> bool:
        return block_hash in self._entries

    def __len__(self) -> int:
        """Blocks with content, or about to get it."""
        return len(self._entries)

    @property
    def cpu_blocks(self) -> tuple[int, int]:
        return self.num_blocks - len(self._entries), self.num_blocks

    # ---- lookup

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        found: list[_Entry] = []
        # list.extend keeps what it got before the lookup of the first unknown hash raises.
        with suppress(KeyError):
            found.extend(map(self._ready.__getitem__, hashes))
        number = len(found)
        return LookupResult(number, undecided=number < len(hashes) and hashes[number] in self._entries)

    def promise(self, hashes: Sequence[bytes]) -> None:
        self._promised, self._promised_set = hashes, None

    def hold(self, hashes: Sequence[bytes]) -> None:
        for block_hash in hashes:
            self._entries[block_hash].readers += 1

    def release(self, hashes: Sequence[bytes]) -> None:
        for block_hash in hashes:
            entry = self._entries[block_hash]
            assert entry.readers > 0, "released more often than held"
            entry.readers -= 1
            if not entry.readers and block_hash not in self._ready:
                self._remove(block_hash)

    def sources(self, hashes: Sequence[bytes]) -> tuple[Address, ...]:
        self._hits += len(hashes)
        return tuple(self._entries[block_hash].number for block_hash in hashes)

    def touch(self, hashes: Sequence[bytes]) -> None:
        ready, order = self._ready, self._order
        for block_hash in reversed(hashes):
            if block_hash in ready:
                order.touch(block_hash)

    # ---- content

    def reserve(self, block_hash: bytes) -> Address | None:
        if block_hash in self._entries:
            return None
        number = self._place()
        if number is None:
            return None
        self._entries[block_hash] = _Entry(number)
        self._order.add(block_hash)
        return number

    def _place(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._num_touched < self.num_blocks:
            self._num_touched += 1
            return self._num_touched - 1
        victim = self._order.evict(self._can_go)
        if victim is None:
            return None
        self._evicted += 1
        if self._events is not None:
            self._events.append(BlockRemoved([short_hash(victim)], MEDIUM_CPU))
        del self._ready[victim]
        return self._entries.pop(victim).number

    def _can_go(self, block_hash: bytes) -> bool:
        if self._promised_set is None:
            self._promised_set = frozenset(self._promised)
        entry = self._ready.get(block_hash)
        return entry is not None and not entry.readers and block_hash not in self._promised_set

    def complete(self, block_hash: bytes) -> None:
        self._ready[block_hash] = self._entries[block_hash]
        self._stored += 1
        if self._events is not None:
            self._events.append(_stored(block_hash))

    def lost(self, block_hash: bytes) -> None:
        # The reader that found out still holds it: it goes with its last reader.
        if self._ready.pop(block_hash, None) is not None and self._events is not None:
            self._events.append(BlockRemoved([short_hash(block_hash)], MEDIUM_CPU))

    def _remove(self, block_hash: bytes) -> None:
        self._free.append(self._entries.pop(block_hash).number)
        self._order.discard(block_hash)

    def reset(self) -> bool:
        if not all(map(self._can_go, self._entries)):
            return False
        if self._events is not None and self._entries:
            # Not AllBlocksCleared: that speaks of every medium.
            self._events.append(BlockRemoved(list(map(short_hash, self._entries)), MEDIUM_CPU))
        self._entries.clear()
        self._ready.clear()
        self._order.clear()
        self._free.clear()
        self._num_touched = 0
        return True

    # ---- news

    def take_events(self) -> Sequence[KVEvent]:
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events

    def take_stats(self) -> Mapping[str, int]:
        stats = {"cpu_hit_blocks": self._hits, "cpu_stored_blocks": self._stored, "cpu_evicted_blocks": self._evicted}
        self._hits = self._stored = self._evicted = 0
        return stats

    def check_invariants(self) -> None:
        """Raise AssertionError if a block is used twice, or lost."""
        numbers = [entry.number for entry in self._entries.values()]
        assert len(set(numbers)) == len(numbers), "two contents share a block"
        assert not set(numbers) & set(self._free), "a block with content is free"
        assert all(self._entries[key] is entry for key, entry in self._ready.items()), "a block is ready that is gone"
        assert len(numbers) + len(self._free) == self._num_touched <= self.num_blocks, "a block is lost"


def _stored(block_hash: bytes) -> BlockStored:
    """The event with which vLLM's offloading connector announces a block: the hash alone, for its tokens came when the
    GPU stored it.
    """
    return BlockStored(
        block_hashes=[short_hash(block_hash)],
        parent_block_hash=None,
        token_ids=[],
        block_size=0,
        lora_id=None,
        medium=MEDIUM_CPU,
        lora_name=None,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Blocks on storage that other engines share: what is there is only known when it is looked for.
#
# Nothing is evicted here, and nothing can be held against others: all who share the storage may delete what is old.
# A block that has gone when it is to be loaded is a failed load, from which the scheduler recovers.


class DiskTier:
    """The scheduler's view of ``stored``, for example :class:`~tokenyard.connectors.tier_worker.BlockFiles`."""

    cpu_blocks = None

    def __init__(self, stored: Container[bytes], on_stored: Callable[[bytes], object] | None = None) -> None:
        """``on_stored`` is notified of blocks that have been written: a replay, which writes none, puts them there."""
        self._there = stored
        self._on_stored = on_stored
        self._unfit: set[bytes] = set()
        """Blocks that could not be read, until an engine stores them again."""
        self._pending: set[bytes] = set()
        self._hits = self._stored = self._lost = 0

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        for number, block_hash in enumerate(hashes):
            if block_hash in self._unfit or block_hash not in self._there:
                return LookupResult(number)
        return LookupResult(len(hashes))

    def promise(self, hashes: Sequence[bytes]) -> None:
        """See :meth:`hold`."""

    def hold(self, hashes: Sequence[bytes]) -> None:
        """Nothing keeps others from deleting it."""

    def release(self, hashes: Sequence[bytes]) -> None:
        """See :meth:`hold`."""

    def sources(self, hashes: Sequence[bytes]) -> tuple[Address, ...]:
        self._hits += len(hashes)
        return tuple(hashes)

    def reserve(self, block_hash: bytes) -> Address | None:
        fit = block_hash not in self._unfit
        if block_hash in self._pending or (fit and block_hash in self._there):
            return None
        self._pending.add(block_hash)
        return block_hash

    def complete(self, block_hash: bytes) -> None:
        self._pending.discard(block_hash)
        if self._on_stored is not None:
            self._on_stored(block_hash)
        if block_hash in self._there:
            self._unfit.discard(block_hash)
            self._stored += 1

    def touch(self, hashes: Sequence[bytes]) -> None:
        """The files show to a job that cleans up when they were read."""

    def lost(self, block_hash: bytes) -> None:
        self._unfit.add(block_hash)
        self._lost += 1

    def reset(self) -> bool:
        """Other engines use it too. After a change of the weights, take another namespace."""
        return False

    def take_events(self) -> Sequence[KVEvent]:
        return ()

    def take_stats(self) -> Mapping[str, int]:
        stats = {"disk_hit_blocks": self._hits, "disk_stored_blocks": self._stored, "disk_lost_blocks": self._lost}
        self._hits = self._stored = self._lost = 0
        return stats
