"""The pool of KV blocks: reference counts and the free queue.

Every block that a step takes, fills or gives back passes here, so this module is one of those that can run compiled
(:mod:`tokenyard.compiled`): ``block_pool.pxd`` says which of its names are numbers. Loops are written for both, the
interpreter and the compiler: one pass over the blocks, which looks at a block's hash once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tokenyard.compiled import column
from tokenyard.core.kv.hashing import digests
from tokenyard.core.kv.prefix_index import make_index
from tokenyard.core.request import BlockHash

__all__ = [
    "NULL_BLOCK",
    "BlockPool",
    "FreeQueue",
    "HashOf",
    "PoolListener",
    "PutBack",
    "append_freed",
    "unhashed_first",
]


# ---------------------------------------------------------------------------------------------------------------------
# The free queue: blocks that no request holds, least recently used first.
#
#     next out <-  [ front, a stack that grows to the left ] [ back, a list that grows to the right ]  <- freed blocks
#                                                              ^ head
#
# Blocks that still carry a hash are eviction candidates; they leave from the front when memory is needed, or from the
# middle when a request hits them again: then a hole stays behind until the head passes it. A block's place says where
# it was put last; it is there still if that place holds it. So a batch that leaves costs a slice, and one that comes
# a list that is appended and a place noted per block.
#
# (Measured here per block of a batch of 700: a doubly linked list over block ids, 80 ns to leave and 70 to come; an
# ``OrderedDict`` three times that; this one 10 and 35.)

# Where a block has left from the middle, -1 stands.

_TURNS = 16
"""How often all blocks may come and go, about, before places are counted anew: they are 32-bit numbers."""


class FreeQueue:
    """Ids below ``num_blocks``, each at most once, in eviction order; ``blocks`` are there from the beginning."""

    __slots__ = ("_back", "_base", "_front", "_head", "_most", "_place", "size")

    def __init__(self, num_blocks: int, blocks: Iterable[int] = ()) -> None:
        self._front: list[int] = []
        """The last one is taken next."""
        self._back: list[int] = []
        self._head = 0
        """What stands before it in ``_back`` has left."""
        self._base = 0
        """Entries that were cut off in front of ``_back``: places are counted from the very first."""
        self._place = column(-1, num_blocks)
        """Block -> its entry in ``_back``, counted with ``_base``, or, negative, ``~`` of its entry in ``_front``."""
        self._most = 2 * num_blocks + 64
        """Entries, holes included, that are worth keeping."""
        self.size = 0
        self.append_n(blocks)

    def __len__(self) -> int:
        return self.size

    def __contains__(self, block: int) -> bool:
        entries, at = self._entry(block)
        return 0 <= at < len(entries) and entries[at] == block

    def __iter__(self) -> Iterator[int]:
        """From the first to be evicted to the last."""
        for entries in (reversed(self._front), self._back[self._head :]):
            yield from [block for block in entries if block != -1]

    def _entry(self, block: int) -> tuple[list[int], int]:
        """Where the block was put last; -1 if that has been left behind."""
        place = self._place[block]
        if place < 0:
            return self._front, ~place
        at = place - self._base
        return self._back, at if at >= self._head else -1

    def popleft(self) -> int:
        """Take the least recently used block; KeyError if the queue is empty."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[int]:
        """Take the ``n`` least recently used blocks, in order; KeyError, and nothing changes, if there are fewer."""
        if n > self.size:
            raise KeyError(f"{n} blocks taken, {self.size} are free")
        taken, rest, self._head = self._leading(n)
        del self._front[rest:]
        self.size -= n
        if self._head > self._most:
            del self._back[: self._head]
            self._base, self._head = self._base + self._head, 0
            if self._base > _TURNS * self._most:
                self._lay_out_anew()
        return taken

    def first_n(self, n: int) -> list[int]:
        """The ``n`` least recently used blocks, in order, which stay where they are; all, if there are fewer."""
        return self._leading(min(n, self.size))[0]

    def _leading(self, n: int) -> tuple[list[int], int, int]:
        """The first ``n`` blocks, what lies behind them in ``_front``, and where they end in ``_back``."""
        front, back, rest, head = self._front, self._back, len(self._front), self._head
        has_holes = rest + len(back) - head > self.size
        taken: list[int] = []
        while rest and len(taken) < n:
            first = max(rest - (n - len(taken)), 0)
            blocks = front[first:rest]
            blocks.reverse()
            rest = first
            taken += [block for block in blocks if block != -1] if has_holes else blocks
        while len(taken) < n:
            end = head + n - len(taken)
            blocks = back[head:end]
            if has_holes:
                blocks = [block for block in blocks if block != -1]
            taken = taken + blocks if taken else blocks
            head = end
        return taken, rest, head

    def append(self, block: int) -> None:
        """Put a block at the end."""
        self.append_n((block,))

    def append_n(self, blocks: Iterable[int]) -> None:
        """Put blocks at the end; the first of them will be evicted first."""
        back, place = self._back, self._place
        put = blocks if type(blocks) is list else list(blocks)
        for at, block in enumerate(put, self._base + len(back)):
            place[block] = at
        back += put
        self.size += len(put)
        if len(back) - self._head > self._most:
            self._lay_out_anew()

    def prepend_n(self, blocks: Iterable[int]) -> None:
        """Put blocks at the front; the first of them will be taken next."""
        front, place = self._front, self._place
        start = len(front)
        front += reversed(list(blocks))
        for at, block in enumerate(front[start:], start):
            place[block] = ~at
        self.size += len(front) - start
        if len(front) > self._most:
            self._lay_out_anew()

    def _lay_out_anew(self) -> None:
        """Without holes, and counted from the beginning: places stay small, however many blocks come and go."""
        blocks = self.first_n(self.size)
        self._front, self._back, self._head, self._base, self.size = [], [], 0, 0, 0
        self.append_n(blocks)

    def remove(self, block: int) -> None:
        """Take a block out of the middle; KeyError if it is not free."""
        self.remove_n((block,))

    def remove_n(self, blocks: Iterable[int]) -> None:
        """Take several blocks out of the middle; KeyError at the first that is not free."""
        front, back, place, base, head = self._front, self._back, self._place, self._base, self._head
        num_front, num_back, num_removed = len(front), len(back), 0
        for block in blocks:
            at = place[block]
            if at >= 0:
                at -= base
                is_free = head <= at < num_back and back[at] == block
                if is_free:
                    back[at] = -1
            else:
                at = ~at
                is_free = at < num_front and front[at] == block
                if is_free:
                    front[at] = -1
            if not is_free:
                self.size -= num_removed
                raise KeyError(block)
            num_removed += 1
        self.size -= num_removed


# ---------------------------------------------------------------------------------------------------------------------
# The block pool: reference counts, the free queue and the prefix index over one set of blocks.
#
#     free + held = total - 1        block 0 is the null block: never handed out, never freed
#     ref[b] == 0  <=>  b is in the free queue
#     hash_of[b] is not None  <=>  b is in one prefix index, index_of[b], under that hash
#
# The null block may stand in any list of blocks; it is passed over.

NULL_BLOCK = 0
"""Stands for a position without KV; exists in every pool."""


class PoolListener:
    """Is notified when cached content is lost: override what you want to know.

    One that raises closes the scheduler.
    """

    def block_evicted(self, block_hash: bytes, group_id: int, block: int) -> None:
        """A cached block is handed out for other content: until its new owner writes, it still holds the old one."""

    def block_forgotten(self, block_hash: bytes, group_id: int) -> None:
        """A block's content turned out to be worthless."""

    def all_forgotten(self) -> None:
        """The cache was reset."""


HashOf = Sequence[BlockHash | None]
"""Block id -> the hash of its cached content."""


PutBack = Callable[[FreeQueue, Sequence[int], HashOf, Collection[int]], None]
"""Gives freed blocks, in order of eviction, their places in the free queue; see :attr:`BlockPool.prompt_tails`."""


def append_freed(queue: FreeQueue, freed: Sequence[int], hash_of: HashOf, prompt_tails: Collection[int]) -> None:
    """Whatever they hold, freed blocks are used again after those that are free already (vLLM 0.22)."""
    queue.append_n(freed)


def unhashed_first(queue: FreeQueue, freed: Sequence[int], hash_of: HashOf, prompt_tails: Collection[int]) -> None:
    """Freed blocks that hold nothing worth keeping are used again before all others (vLLM since 0.24)."""
    worthless: list[int] = []
    kept: list[int] = []
    for block in freed:
        at = block  # for C: where it stands
        if hash_of[at] is None and block not in prompt_tails:
            worthless.append(block)
        else:
            kept.append(block)
    queue.prepend_n(worthless)
    queue.append_n(kept)


class BlockPool:
    """Hands out, shares, caches and takes back blocks."""

    __slots__ = (
        "_put_back",
        "free_queue",
        "hash_of",
        "index_of",
        "indexes",
        "listeners",
        "num_blocks",
        "prompt_tails",
        "ref",
    )

    def __init__(
        self,
        num_blocks: int,
        num_groups: int = 1,
        *,
        put_back: PutBack = append_freed,
        numbered: bool = False,
    ) -> None:
        """``numbered``: hashes are consecutive numbers, for which compiled code has an index that is quicker."""
        self._put_back = put_back
        self.num_blocks = num_blocks
        self.free_queue = FreeQueue(num_blocks, range(1, num_blocks))
        self.indexes = [make_index(num_blocks, group_id, numbered=numbered) for group_id in range(num_groups)]
        """Per KV-cache group: the same tokens have other KV in another group."""
        self.ref = column(0, num_blocks)
        self.hash_of: list[BlockHash | None] = [None] * num_blocks
        self.index_of = [self.indexes[0]] * num_blocks
        self.prompt_tails: dict[int, int] = {}
        """Block -> tokens of its prompt up to a hash within it, while the hash of the whole block is not known.

        No lookup finds it; vLLM 0.33 keeps it as cached content all the same.
        """
        self.listeners: tuple[PoolListener, ...] = ()
        """Notified in this order; see :meth:`subscribe`."""

    def subscribe(self, listener: PoolListener) -> None:
        """Notify ``listener`` of all cached content that is lost from now on."""
        self.listeners += (listener,)

    @property
    def num_free(self) -> int:
        """Blocks in the free queue, cached evictable ones included."""
        return self.free_queue.size

    @property
    def usage(self) -> float:
        """Fraction of the blocks, without the null block, that requests hold."""
        usable = self.num_blocks - 1
        return 1.0 - self.free_queue.size / usable if usable else 0.0

    def take(self, n: int) -> list[int]:
        """``n`` blocks from the front of the free queue, each with one reference; their cached content is forgotten.

        The caller has checked ``n <= num_free``.
        """
        ref, hash_of = self.ref, self.hash_of
        blocks = self.free_queue.popleft_n(n)
        contents: list[BlockHash] = []
        for block in blocks:
            at = block  # for C: where it stands
            ref[at] = 1
            content = hash_of[at]
            if content is not None:
                contents.append(content)
        if contents:
            all_are_cached = len(contents) == n
            cached = blocks if all_are_cached else [block for block in blocks if hash_of[block] is not None]
            for block in cached:
                at = block
                hash_of[at] = None
            self._evict(cached, contents)
        if self.prompt_tails:
            self._forget_tails(blocks)
        return blocks

    def _forget_tails(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.prompt_tails.pop(block, None)

    def _evict(self, blocks: list[int], hashes: list[BlockHash]) -> None:
        """Forget these hashes, which the blocks held, in order."""
        first = self.indexes[0]  # for C, which knows its type
        if len(self.indexes) == 1:
            first.discard_n(hashes, blocks)
        else:
            for block, old in zip(blocks, hashes, strict=True):
                self.index_of[block].discard(old, block)
        if self.listeners:
            for block, old in zip(blocks, digests(hashes), strict=True):
                for listener in self.listeners:
                    listener.block_evicted(old, self.index_of[block].group_id, block)

    def forget(self, block: int) -> None:
        """Drop a block's cached content, if it has any."""
        self._forget_tails([block])
        old = self.hash_of[block]
        if old is not None:
            self.hash_of[block] = None
            self.index_of[block].discard(old, block)
            for listener in self.listeners:
                listener.block_forgotten(digests([old])[0], self.index_of[block].group_id)

    def forget_content(self, hashes: Iterable[BlockHash]) -> None:
        """Drop this cached content wherever it is."""
        for block_hash in hashes:
            for index in self.indexes:
                for block in index.all_blocks(block_hash):
                    self.forget(block)

    def num_evictable(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` lie in the free queue."""
        ref, evictable = self.ref, 0
        for block in blocks:
            if not ref[block] and block != NULL_BLOCK:  # which has no references either, but is not in the queue
                evictable += 1
        return evictable

    def touch(self, blocks: Sequence[int]) -> None:
        """Take a reference on cached blocks; free ones leave the queue."""
        ref = self.ref
        free: list[int] = []
        for block in blocks:
            at = block  # for C: where it stands
            if at:  # the null block has no references
                holders = ref[at]
                ref[at] = holders + 1
                if not holders:
                    free.append(block)
        self.free_queue.remove_n(free)

    def release(self, ordered: Iterable[int], put_back: PutBack | None = None) -> None:
        """Drop one reference each; those without any left join the queue, the first to be evicted given first.

        ``put_back`` gives them other places than the pool's own rule.
        """
        ref = self.ref
        freed: list[int] = []
        for block in ordered:
            at = block  # for C: where it stands
            if at:  # the null block has no references
                left = ref[at] - 1
                ref[at] = left
                if not left:
                    freed.append(block)
        (put_back or self._put_back)(self.free_queue, freed, self.hash_of, self.prompt_tails)

    def publish(self, blocks: list[int], hashes: list[BlockHash], group_id: int = 0) -> None:
        """Make full blocks of a group findable by their hashes, one each."""
        hash_of, index_of, index = self.hash_of, self.index_of, self.indexes[group_id]
        for i, block in enumerate(blocks):
            hash_of[block] = hashes[i]
        if hash_of[NULL_BLOCK] is not None:  # it was among them
            hash_of[NULL_BLOCK] = None
            pairs = [pair for pair in zip(blocks, hashes, strict=True) if pair[0] != NULL_BLOCK]
            blocks, hashes = [block for block, _ in pairs], [block_hash for _, block_hash in pairs]
        if len(self.indexes) > 1:  # a single one is every block's from the beginning
            for block in blocks:
                index_of[block] = index
        index.add_n(hashes, blocks)
        if self.prompt_tails:
            self._forget_tails(blocks)

    def note_prompt_tail(self, block: int, num_tokens: int) -> None:
        """A block without a hash holds a prompt up to ``num_tokens``, where a hash ends; see :attr:`prompt_tails`."""
        if block != NULL_BLOCK and self.hash_of[block] is None:
            self.prompt_tails[block] = num_tokens

    @property
    def num_cached(self) -> int:
        """Distinct hashes, over all groups."""
        return sum(map(len, self.indexes))

    def reset(self) -> bool:
        """Forget all cached content; False, and nothing changes, while a block is held."""
        if self.num_free != self.num_blocks - 1:
            return False
        for index in self.indexes:
            index.clear()
        self.hash_of = [None] * self.num_blocks
        self.prompt_tails.clear()
        for listener in self.listeners:
            listener.all_forgotten()
        return True

    def check_invariants(self, holders: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless counts, queue and index agree with the block lists of all holders."""
        expected = [0] * self.num_blocks
        for blocks in holders:
            for block in blocks:
                expected[block] += block != NULL_BLOCK
        assert expected == list(self.ref), "reference counts differ from the holders"
        free = list(self.free_queue)
        assert NULL_BLOCK not in free, "the null block is free"
        assert all(not self.ref[block] for block in free), "a held block is in the free queue"
        held = sum(count > 0 for count in self.ref)
        assert len(free) + held == self.num_blocks - 1, "free + held is not the total"
        cached = [block for block, block_hash in enumerate(self.hash_of) if block_hash is not None]
        for block in cached:
            block_hash = self.hash_of[block]
            assert block_hash is not None
            assert block in self.index_of[block].all_blocks(block_hash), f"block {block} is cached but not indexed"
        known = {(id(self.index_of[block]), self.hash_of[block]) for block in cached}
        found = sum(
            len(index.all_blocks(key)) for index in self.indexes for at, key in known if at == id(index) and key
        )
        assert found == len(cached), "an index knows blocks that carry no hash"
        assert self.num_cached == len(known), "an index knows hashes that no block carries"
        assert self.prompt_tails.keys().isdisjoint(cached), "a block is cached whole and in part"
