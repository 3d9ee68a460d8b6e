"""Encoder inputs: an image's placeholder tokens can be computed only in or after the step that runs its encoder.

    | ... text ... [ image placeholders ] ... text ... |
      computed ->  ^ offset              ^ end
                   the encoder runs at the latest in the step that reaches this position

If the encoder budget or cache cannot take the next item, the request is granted the tokens before it, or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tokenyard.core.config import SchedulerConfig
from tokenyard.core.kv.encoder_cache import EncoderCache, EncoderDecoderCache, ItemEncoderCache
from tokenyard.core.request import MultiModalItem, Request
from tokenyard.core.rows import NEVER
from tokenyard.core.sched.candidate import StepBudget


class EncoderGrant(NamedTuple):
    """How far a request may go in a step."""

    num_new_tokens: int
    items: tuple[int, ...]
    """Indices of the items whose encoder runs in this step."""


class EncoderReleases:
    """Lets go of encoder outputs when a step's output is taken in: row by row, as vLLM walks through the step.

    A row lets go of what its request has passed, and of all the rest if the request ends. The order decides which
    outputs are evicted first. What was passed is known before the tokens are accepted, who ends only after it.
    """

    def __init__(self, cache: EncoderCache) -> None:
        self._cache = cache
        self._passed: deque[tuple[Request, list[MultiModalItem]]] = deque()
        """Requests whose rows have not let go, with the items they have passed, the first row first."""

    def begin(self, requests: Sequence[Request], discarded: Collection[Request]) -> None:
        """Note what the rows of a step have passed; the output of those in ``discarded`` changes nothing."""
        self._passed = deque(
            (request, self._cache.passed_items(request))
            for request in requests
            if request.mm_features and not request.status.is_finished and request not in discarded
        )

    def free(self, request: Request) -> None:
        """``request`` needs none of its items any more; the rows before it let go first."""
        if any(request is each for each, _ in self._passed):
            while self._passed and self._release_first() is not request:
                pass
        self._cache.free(request)

    def end(self) -> None:
        """The rows that are left let go."""
        while self._passed:
            self._release_first()

    def _release_first(self) -> Request:
        request, items = self._passed.popleft()
        for item in items:
            self._cache.release(request, item)
        return request


class EncoderInputs:
    """Plans encoder runs within the step's encoder budget."""

    def __init__(self, config: SchedulerConfig, *, shift: int, unit: int = 1) -> None:
        self._profile = profile = config.profile
        self.budget = config.max_num_encoder_input_tokens
        """Embeddings that one step may compute."""
        size = config.encoder_cache_size or config.max_num_encoder_input_tokens
        self._lag = shift if profile.encoder_lags_behind_head else 0
        by_items = profile.encoder_refers_to_items
        self._use(ItemEncoderCache(size, profile, self._lag) if by_items else EncoderCache(size))
        self.whole_items = config.disable_chunked_mm_input
        """Items are computed in one step or not at all."""
        self._max_tokens = config.max_num_batched_tokens
        self._max_slice = min(self._max_tokens, config.long_prefill_token_threshold or self._max_tokens)
        """Most prompt tokens of one request in one step."""
        self._shift = shift
        """An EAGLE head looks one position ahead."""
        self._shift_needed = 0 if profile.encoder_runs_up_to_items else shift
        """A position cannot be computed without the item that begins so far behind it."""
        self._unit = unit
        """Steps of a prompt end at multiples of this many tokens."""
        self._items: dict[str, list[MultiModalItem]] = {}
        """Request id -> items, of unfinished requests and of input that their sessions have yet to take."""
        self._wanted: dict[str, list[int]] = {}
        """Content hash -> embeddings, and how many of those items have it."""
        self._repeated: tuple[Request | None, list[int]] = (None, [])
        """The request of the last plan, and its items with the same content as one whose encoder runs."""

    # ---- items of one content have one size

    def size_of(self, mm_hash: str) -> int | None:
        """Embeddings of the item with this content, if it is kept or a request wants it."""
        wanted = self._wanted.get(mm_hash)
        return self.cache.size_of(mm_hash) if wanted is None else wanted[0]

    def items_added(self, request: Request) -> None:
        """A request was added, or further input of a session with its id."""
        if request.mm_features:
            self._items.setdefault(request.request_id, []).extend(request.mm_features)
            for item in request.mm_features:
                self._wanted.setdefault(item.mm_hash, [item.num_embeds, 0])[1] += 1

    def request_ended(self, request: Request) -> None:
        """Its outputs are freed, and it waits for no more of them."""
        self.releases.free(request)
        for item in self._items.pop(request.request_id, ()):
            wanted = self._wanted[item.mm_hash]
            wanted[1] -= 1
            if not wanted[1]:
                del self._wanted[item.mm_hash]

    # ---- steps

    def _use(self, cache: EncoderCache) -> None:
        self.cache = cache
        self.releases = EncoderReleases(cache)

    def next_position(self, request: Request, num_computed: int) -> int:
        """Positions up to this one can be computed without looking at encoder inputs."""
        starts = [item.offset - self._shift for item in request.mm_features if item.end > num_computed]
        return min(starts, default=NEVER)

    def note_position(self, request: Request, num_computed: int) -> None:
        """Note up to where the request can be computed without looking again."""
        request.encoder_at = self.next_position(request, num_computed)

    def never_whole(self, item: MultiModalItem) -> bool:
        """Whether the item has to be computed in one step and never can be.

        A request that has come to the item itself may compute part of it after all; with ``encoder_runs_up_to_items``
        never, unless it is alone in the engine. With an EAGLE head it stops one position before, and needs that
        position as well.
        """
        if not self.whole_items:
            return False
        before = self._shift if item.offset else 0
        cannot_cut = bool(before) or self._profile.encoder_runs_up_to_items
        return item.length > self._max_tokens or (cannot_cut and item.length + before > self._max_slice)

    @property
    def most_together(self) -> int:
        """Embeddings that can be kept for one position; within a block they are computed in one step as well."""
        return self.cache.size if self._unit == 1 else min(self.cache.size, self.budget)

    def embeds_needed_with(self, request: Request, item: MultiModalItem) -> int:
        """Embeddings that must be kept at the position that first needs ``item``: its own and those not passed yet.

        Where steps end at blocks, that is the beginning of a block, and all items that begin within it are needed.
        """
        first = (item.offset - self._shift_needed) // self._unit * self._unit
        last = first + self._shift_needed + self._unit - 1
        alive = {
            other.mm_hash: other.num_embeds
            for other in request.mm_features
            if other.offset <= last and other.end + self._lag > first
        }
        return sum(alive.values())

    def num_cross_tokens(self, request: Request, items: tuple[int, ...]) -> int:
        """Embeddings of ``items`` that cross-attention layers keep: none, they stand in the prompt."""
        return 0

    def plan(self, request: Request, num_computed: int, num_new_tokens: int, budget: int) -> EncoderGrant:
        """How many of ``num_new_tokens`` can be computed after ``num_computed``, and which items that takes."""
        profile, end = self._profile, num_computed + num_new_tokens + self._shift
        chosen: list[int] = []
        repeated: list[int] = []
        hashes: set[str] = set()
        planned = 0
        for i, item in enumerate(request.mm_features) if num_new_tokens else ():
            if item.end <= num_computed:
                continue
            if item.offset >= end:
                break
            would_cut = self._would_cut(item, num_computed, num_new_tokens)
            if not (would_cut and profile.encoder_takes_repeated):
                if item.mm_hash in hashes:
                    repeated.append(i)
                    continue
                if self.cache.refer(request, item):
                    continue
            if would_cut:
                num_new_tokens = max(0, item.offset - num_computed - self._shift)
                break
            if item.num_embeds > budget or not self.cache.make_room(planned + item.num_embeds):
                num_new_tokens = min(num_new_tokens, max(0, item.offset - num_computed - self._shift_needed))
                break
            read = end if profile.encoder_counts_head else num_computed + num_new_tokens
            if not item.has_embeds(num_computed - item.offset, read - item.offset):
                continue
            planned += item.num_embeds
            budget -= item.num_embeds
            hashes.add(item.mm_hash)
            chosen.append(i)
        self._repeated = (request, repeated if profile.encoder_takes_repeated else [])
        return EncoderGrant(num_new_tokens, tuple(chosen))

    def _would_cut(self, item: MultiModalItem, num_computed: int, num_new_tokens: int) -> bool:
        begins = num_computed == item.offset and self._profile.encoder_runs_up_to_items
        return self.whole_items and (num_computed < item.offset or begins) and num_computed + num_new_tokens < item.end

    def commit(self, request: Request, items: tuple[int, ...], budget: StepBudget) -> None:
        """The request is granted: its items take room and budget."""
        for i in items:
            self.cache.allocate(request, request.mm_features[i])
            budget.encoder -= request.mm_features[i].num_embeds
        if items:
            budget.encoder_items[request.request_id] = list(items)
        planned_for, repeated = self._repeated
        for i in repeated if items and planned_for is request else ():
            self.cache.refer(request, request.mm_features[i])

    def roll_back(self, request: Request, budget: StepBudget, granted: Sequence[Request] | None = None) -> None:
        """The request was granted earlier in this step and is preempted now.

        Its items are taken out of the step. With ``granted``, the others of this step, one of them takes over an item
        that it needs as well, and the rest is forgotten; vLLM 0.22 believes that all of it is cached.
        """
        for i in budget.encoder_items.pop(request.request_id, ()):
            item = request.mm_features[i]
            heir = self._heir(item, request, granted) if granted is not None else None
            if heir is not None:
                budget.encoder_items.setdefault(heir[0], []).append(heir[1])
                continue
            budget.encoder += item.num_embeds
            if granted is not None:
                self.cache.forget(request, item)

    def _heir(self, item: MultiModalItem, request: Request, granted: Sequence[Request]) -> tuple[str, int] | None:
        """Another request that waits for the item's output in this step, and its number there."""
        for other in granted:
            if other is not request and self.cache.is_used_by(other, item):
                for i, own in enumerate(other.mm_features):
                    if own.mm_hash == item.mm_hash:
                        return other.request_id, i
        return None


class CrossEncoderInputs(EncoderInputs):
    """An encoder-decoder model: the items are read by cross attention, all of them before the first decoder token."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config, shift=0)
        self._use(EncoderDecoderCache(self.cache.size))

    def next_position(self, request: Request, num_computed: int) -> int:
        return NEVER

    def num_cross_tokens(self, request: Request, items: tuple[int, ...]) -> int:
        return sum(request.mm_features[i].num_embeds for i in items)

    def plan(self, request: Request, num_computed: int, num_new_tokens: int, budget: int) -> EncoderGrant:
        chosen: list[int] = []
        planned = 0
        for i, item in enumerate(request.mm_features) if num_computed == 0 else ():
            if planned + item.num_embeds > budget or not self.cache.make_room(planned + item.num_embeds):
                return EncoderGrant(0, tuple(chosen))
            if item.has_embeds(0, num_new_tokens):
                planned += item.num_embeds
                chosen.append(i)
        return EncoderGrant(num_new_tokens, tuple(chosen))
