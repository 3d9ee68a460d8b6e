"""Which cached block is given up when one is needed: the seam, and what keeps count of blocks where an order is set.

Without an order the free queue is a ring, and its first block goes: least recently used, at no cost. With one, blocks
that hold nothing of use still go first; of the others the one with the least ``rank``, of equals the one that was
freed first.

    found, written, left      a request uses blocks: what is known of their content grows (:class:`CachedBlock`)
    choose                    a block is needed: the free one of the least rank

What is known of a content outlives its block, so that an order can count uses over all time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tokenyard.core.basics import check_hook_names
from tokenyard.core.request import BlockHash, Request
from tokenyard.core.sched.calls import asked
from tokenyard.core.sched.policy_context import PolicyContext
from tokenyard.core.sched.serving_one import ServesOne
from tokenyard.errors import ConfigError, PolicyError, shown

if TYPE_CHECKING:
    from tokenyard.core.kv.block_pool import BlockPool

__all__ = ["CachedBlock", "EvictionOrder", "Evictor", "Job", "Rank", "rank_of"]

Rank: TypeAlias = float | tuple[float, ...]
"""What blocks are sorted by: a number, or a tuple of numbers, as long for every block."""
_REMEMBERED = 8
"""Last uses of a content whose moments are kept."""


class Job:
    """The turns of one agent, or a request without ``job_id``: who has used blocks."""

    __slots__ = ("blocks", "is_over", "job_id", "last_used", "turns")

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.is_over = False
        """Its last turn (``is_last_step``) has ended."""
        self.turns = 0
        """Turns that were admitted, each once."""
        self.last_used = 0.0
        """When a turn was admitted, or let go of its blocks, the last time; in seconds."""
        self.blocks: set[CachedBlock] = set()
        """What it has used."""


class KnowsUses(Protocol):
    """What keeps count of blocks."""

    def next_use(self, known: CachedBlock) -> float:
        """As :attr:`CachedBlock.next_use`."""

    def seconds_of(self, known: CachedBlock) -> float:
        """As :attr:`CachedBlock.recompute_seconds`."""


class CachedBlock:
    """A content that a block holds, and what is known of its use."""

    __slots__ = (
        *("_owner", "block", "content", "hits", "job", "jobs", "last_used", "num_tokens", "position", "request"),
        *("times", "uses"),
    )

    def __init__(self, owner: Any, content: BlockHash, position: int, num_tokens: int) -> None:
        self._owner: KnowsUses = owner
        self.content = content
        self.position = position
        """Its place in the sequence: so many blocks are before it."""
        self.num_tokens = num_tokens
        self.block = 0
        """The block that holds it; 0: none does now."""
        self.uses = 0
        """Requests that had it, cached or not, over all time."""
        self.hits = 0
        """Requests that found it in the cache, over all time."""
        self.last_used = 0.0
        """When a request was admitted with it, or let go of it, the last time; in seconds."""
        self.times: deque[float] = deque(maxlen=_REMEMBERED)
        """When the last eight requests that had it were admitted, the latest last."""
        self.request: Request | None = None
        """The last of them."""
        self.job: Job | None = None
        """The job of that one."""
        self.jobs: set[Job] = set()
        """Jobs that have used it and are not over."""

    @property
    def next_use(self) -> float:
        """Number of the next request to come that has it, by their order in the workload; infinite: none has.

        Known to an order that ``looks_ahead``. To others: the moment that the last request with it expected the next
        (``meta["next_use_s"]``, seconds from its end on), infinite where it said nothing.
        """
        return self._owner.next_use(self)

    @property
    def recompute_seconds(self) -> float:
        """How much longer a prompt takes that ends with it than one that ends before it: 0 where the host does not
        know (``PolicyContext.prefill_seconds``).
        """
        return self._owner.seconds_of(self)


class EvictionOrder(ServesOne[PolicyContext]):
    """Ranks cached blocks that nothing holds: when a block is needed, the one of the least rank is given up.

    ``self.context`` is a policy's. A class with a method that is called almost as one of these, or one without
    ``rank``, is refused when it is made (ConfigError).
    """

    _field, _error = "eviction", PolicyError
    changes_by_itself = True
    """The rank of a block may change while nothing uses it: each free block is asked whenever one is needed. A class
    that says False is asked when a block is used or freed, which makes an eviction as cheap as a heap.
    """
    looks_ahead = False
    """It reads the next use of blocks from the workload: a bound, in the replay of one engine alone."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "eviction")
        if cls.rank is EvictionOrder.rank:
            fix = "is missing, so no block could be chosen: define rank(self, block, now), which returns a number"
            raise ConfigError("eviction", f"{cls.__qualname__}.rank", fix)

    def rank(self, block: CachedBlock, now: float) -> Rank:
        """Sorts blocks, the one to give up first in front: a number, or a tuple of numbers."""
        raise NotImplementedError

    def used(self, block: CachedBlock, now: float) -> None:
        """A request has found this content in the cache, or begins to compute it."""

    def evicted(self, block: CachedBlock, now: float) -> None:
        """This content is given up: ``block.block`` is about to hold another."""


def rank_of(order: EvictionOrder, known: CachedBlock, now: float) -> tuple[float, ...]:
    """Return the rank of a block as a tuple. Raises PolicyError for what sorts nothing."""
    rank = asked(PolicyError, order, "rank", order.rank, known, now)
    parts = rank if isinstance(rank, tuple) else (rank,)
    if not parts or not all(isinstance(each, int | float) and not isnan(each) for each in parts):
        raise PolicyError(order, "rank", f"returned {shown(rank)}: return a number, or a tuple of numbers")
    return parts


class Evictor:
    """Keeps count of what blocks hold, and asks an order which of them is given up."""

    def __init__(self, order: EvictionOrder, pool: BlockPool, block_size: int, clock: Callable[[], float]) -> None:
        """ConfigError for what is no order."""
        if not isinstance(order, EvictionOrder):
            fix = "give an object of a class derived from tokenyard.EvictionOrder, which makes no blocks itself"
            raise ConfigError("eviction", order, fix)
        self.order = order
        self._pool = pool
        self._size = block_size
        self._clock = clock
        self._known: dict[BlockHash, CachedBlock] = {}
        self._jobs: dict[str, Job] = {}
        self._freed = [0] * pool.num_blocks
        """When each block became free, counted."""
        self._count = 0
        self._heap: list[tuple[tuple[float, ...], int, int]] = []
        """Rank, when it became free, block: of an order whose ranks stand still. Some are out of date."""
        self._future: dict[BlockHash, deque[int]] = {}
        self._numbers: dict[str, int] = {}
        """Requests to come, by id."""
        self._seconds: dict[int, float] = {}
        self._seen: set[str] = set()

    # ---- what requests do

    def found(self, request: Request, blocks: Sequence[int]) -> None:
        """A request is admitted, and finds these blocks at its beginning."""
        now = self._clock()
        self._job_of(request, now)
        for position, block in enumerate(blocks):
            content = self._pool.content[block]
            if content is not None:
                known = self._use(request, content, position, now)
                known.hits += 1
                known.block = block
        self._comes_true(request)

    def written(self, request: Request, start: int, stop: int) -> None:
        """Blocks of a request can be found by their content from now on."""
        now = self._clock()
        for position in range(start, stop):
            self._use(request, request.block_hashes[position], position, now).block = request.blocks.data[position]

    def left(self, request: Request) -> None:
        """A request lets go of all its blocks."""
        now = self._clock()
        job = self._job_of(request, now)
        for block in reversed(request.blocks.as_list()):
            content = self._pool.content[block]
            if content is not None and (known := self._known.get(content)) is not None:
                known.last_used = now
        if request.status.is_finished:
            self._seen.discard(request.request_id)
            if request.is_last_step or request.job_id is None:
                self._is_over(job)
        self.freed(reversed(request.blocks.as_list()))

    def freed(self, blocks: Iterable[int]) -> None:
        """Blocks are about to be let go of, in this order."""
        for block in blocks:
            if block and self._pool.holders[block] == 1:
                self._count += 1
                self._freed[block] = self._count
                self._sort_in(block)

    def _use(self, request: Request, content: BlockHash, position: int, now: float) -> CachedBlock:
        known = self._known.get(content)
        if known is None:
            known = self._known[content] = CachedBlock(self, content, position, self._size)
        if known.request is not request:
            known.uses += 1
            known.times.append(now)
        known.last_used = now
        known.request = request
        known.job = job = self._jobs[_job_id(request)]
        known.jobs.add(job)
        job.blocks.add(known)
        if type(self.order).used is not EvictionOrder.used:
            asked(PolicyError, self.order, "used", self.order.used, known, now)
        return known

    def _job_of(self, request: Request, now: float) -> Job:
        name = _job_id(request)
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = Job(name)
        if request.request_id not in self._seen:
            self._seen.add(request.request_id)
            job.turns += 1
        job.last_used = now
        return job

    def _is_over(self, job: Job) -> None:
        job.is_over = True
        self._jobs.pop(job.job_id, None)
        for known in job.blocks:
            known.jobs.discard(job)
            self._again(known)
        job.blocks = set()

    def _again(self, known: CachedBlock) -> None:
        """The rank of a content may have changed although nothing has used its block."""
        if known.block and self._pool.content[known.block] == known.content and not self._pool.holders[known.block]:
            self._sort_in(known.block)

    # ---- a block is needed

    def choose(self) -> int:
        """Return the free block to give up; there is one."""
        block = self._chosen()
        content = self._pool.content[block]
        if content is not None and (known := self._known.get(content)) is not None and known.block == block:
            if type(self.order).evicted is not EvictionOrder.evicted:
                asked(PolicyError, self.order, "evicted", self.order.evicted, known, self._clock())
            known.block = 0
        return block

    def _chosen(self) -> int:
        first = self._pool.after[0]
        if self._pool.content[first] is None:
            return first
        if self.order.changes_by_itself:
            return self._least()
        while self._heap:
            rank, since, block = heappop(self._heap)
            if since != self._freed[block] or self._pool.holders[block] or self._pool.content[block] is None:
                continue
            now = self._rank(block)
            if now == rank:
                return block
            heappush(self._heap, (now, since, block))
        return first

    def _least(self) -> int:
        least: tuple[tuple[float, ...], int] | None = None
        for block in self._pool.free_blocks():
            if self._pool.content[block] is None:
                return block
            rank = self._rank(block)
            if least is None or rank < least[0]:
                least = rank, block
        assert least is not None
        return least[1]

    def _rank(self, block: int) -> tuple[float, ...]:
        content = self._pool.content[block]
        assert content is not None
        known = self._known.get(content)
        if known is None:
            known = self._known[content] = CachedBlock(self, content, 0, self._size)
        known.block = block
        return rank_of(self.order, known, self._clock())

    def _sort_in(self, block: int) -> None:
        if not self.order.changes_by_itself and self._pool.content[block] is not None:
            heappush(self._heap, (self._rank(block), self._freed[block], block))

    # ---- what is to come

    def foresee(self, requests: Iterable[tuple[str, Sequence[BlockHash]]]) -> None:
        """Requests to come, in their order, with the contents of their prompts."""
        for number, (request_id, contents) in enumerate(requests):
            self._numbers[request_id] = number
            for content in contents:
                self._future.setdefault(content, deque()).append(number)

    def _comes_true(self, request: Request) -> None:
        number = self._numbers.pop(request.request_id, None)
        if number is None:
            return
        for content in request.block_hashes:
            to_come = self._future.get(content)
            if to_come and number in to_come:
                to_come.remove(number)
            if (known := self._known.get(content)) is not None:
                self._again(known)

    def next_use(self, known: CachedBlock) -> float:
        """As :attr:`CachedBlock.next_use`."""
        if self.order.looks_ahead:
            to_come = self._future.get(known.content)
            return to_come[0] if to_come else inf
        hint = None if known.request is None else known.request.meta.get("next_use_s")
        return known.last_used + float(hint) if isinstance(hint, int | float) else inf

    def seconds_of(self, known: CachedBlock) -> float:
        """As :attr:`CachedBlock.recompute_seconds`."""
        seconds = self.order.context.prefill_seconds
        if seconds is None:
            return 0.0
        place = known.position
        if place not in self._seconds:
            before = seconds(place * self._size) if place else 0.0
            self._seconds[place] = max(seconds((place + 1) * self._size) - before, 0.0)
        return self._seconds[place]

    def clear(self) -> None:
        """The cache was reset: no block holds anything of use."""
        self._heap.clear()
        for known in self._known.values():
            known.block = 0


def _job_id(request: Request) -> str:
    return f"request {request.request_id}" if request.job_id is None else request.job_id
