"""The encoder cache: outputs of vision and audio encoders, kept from the step that computes them until the decoder has
passed them, and as long as there is room after that.

Sizes are in embeddings. An item is known by its content hash, so requests with the same image share its output.

    size = free + referenced + freeable       freeable: no request refers to it; evicted oldest first
"""

from __future__ import annotations

from collections import OrderedDict

from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import MultiModalItem, Request


class EncoderCache:
    """Bookkeeping of encoder outputs; the tensors are the worker's."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.num_free = size
        """Embeddings that nothing occupies."""
        self.num_reclaimable = size
        """Embeddings free or freeable."""
        self._users: dict[str, set[str]] = {}
        """Content hash -> ids of the requests that refer to it."""
        self._freeable: OrderedDict[str, int] = OrderedDict()
        """Content hash -> embeddings, oldest first."""
        self._evicted: list[str] = []
        self._sizes: dict[str, int] = {}
        """Content hash -> embeddings of the output, of all that are kept."""

    def size_of(self, mm_hash: str) -> int | None:
        """Embeddings of the output that is kept under this hash; None if none is."""
        return self._sizes.get(mm_hash)

    def refer(self, request: Request, item: MultiModalItem) -> bool:
        """True, and ``request`` now refers to it, if the item's output is cached."""
        users = self._users.get(item.mm_hash)
        if users is None:
            return False
        if not users:
            self.num_reclaimable -= self._freeable.pop(item.mm_hash)
        users.add(request.request_id)
        return True

    def make_room(self, num_embeds: int) -> bool:
        """Evict until ``num_embeds`` are free; False, and nothing changes, if that cannot be."""
        if num_embeds > self.num_reclaimable:
            return False
        while num_embeds > self.num_free:
            mm_hash, freed = self._freeable.popitem(last=False)
            del self._users[mm_hash], self._sizes[mm_hash]
            self._evicted.append(mm_hash)
            self.num_free += freed
        return True

    def allocate(self, request: Request, item: MultiModalItem) -> None:
        """Take room for the item's output; :meth:`make_room` has granted it."""
        self._users.setdefault(item.mm_hash, set()).add(request.request_id)
        self._sizes[item.mm_hash] = item.num_embeds
        self.num_free -= item.num_embeds
        self.num_reclaimable -= item.num_embeds
        assert self.num_free >= 0, "encoder cache overfull"

    def release(self, request: Request, item: MultiModalItem) -> None:
        """``request`` no longer needs the item's output."""
        users = self._users.get(item.mm_hash)
        if not users:
            return
        users.discard(request.request_id)
        if not users:
            self._freeable[item.mm_hash] = size = self._sizes[item.mm_hash]
            self.num_reclaimable += size

    def forget(self, request: Request, item: MultiModalItem) -> None:
        """The item's output will not be computed after all; only ``request`` waits for it."""
        if self._users.get(item.mm_hash) == {request.request_id}:
            del self._users[item.mm_hash]
            size = self._sizes.pop(item.mm_hash)
            self.num_free += size
            self.num_reclaimable += size

    def is_used_by(self, request: Request, item: MultiModalItem) -> bool:
        """Whether ``request`` refers to the item's output."""
        return request.request_id in self._users.get(item.mm_hash, ())

    def users(self) -> set[str]:
        """Ids of the requests that refer to any output."""
        return set().union(*self._users.values())

    def _cached_items(self, request: Request) -> list[MultiModalItem]:
        """Items of the request that are cached, in the order in which vLLM releases them.

        That is the order of a set of their indices, which is not ascending once there are more than eight; it decides
        which output is evicted first.
        """
        cached = {i for i, item in enumerate(request.mm_features) if item.mm_hash in self._users}
        return [request.mm_features[i] for i in cached]

    def free(self, request: Request) -> None:
        """``request`` needs none of its items any more."""
        for item in self._cached_items(request):
            self.release(request, item)

    def passed_items(self, request: Request) -> list[MultiModalItem]:
        """Items that the request's computed tokens have passed, in the order in which vLLM releases them.

        Their content is in the KV cache now.
        """
        passed = self._passed_tokens(request)
        return [item for item in self._cached_items(request) if item.end <= passed]

    def _passed_tokens(self, request: Request) -> int:
        """Tokens up to which items are let go of."""
        return request.num_computed_tokens

    def take_evicted(self) -> tuple[str, ...]:
        """Hashes evicted since the last call: workers drop the tensors."""
        evicted, self._evicted = tuple(self._evicted), []
        return evicted

    def reset(self) -> None:
        """Forget everything (the encoder's weights have changed)."""
        self.num_free = self.num_reclaimable = self.size
        self._users.clear()
        self._freeable.clear()
        self._evicted.clear()
        self._sizes.clear()

    def check_invariants(self) -> None:
        """Raise AssertionError if sizes and references disagree."""
        assert 0 <= self.num_free <= self.num_reclaimable <= self.size, "encoder cache sizes are out of order"
        assert self.num_reclaimable - self.num_free == sum(self._freeable.values()), "freeable sizes do not add up"
        unused = {mm_hash for mm_hash, users in self._users.items() if not users}
        assert unused == set(self._freeable), "items without users are not the freeable ones"
        assert self._sizes.keys() == self._users.keys(), "sizes are known of others than those that are kept"
        assert self.num_free + sum(self._sizes.values()) == self.size, "kept and free sizes do not add up"


class ItemEncoderCache(EncoderCache):
    """A request refers to items, not to contents: to those only that it was given (``encoder_refers_to_items``).

    ``profile`` has the switches that say when it lets go of one; with ``lag`` it is so many tokens later.
    """

    def __init__(self, size: int, profile: DecisionProfile, lag: int = 0) -> None:
        super().__init__(size)
        self._profile = profile
        self._lag = lag
        self._items: dict[str, set[int]] = {}
        """Request id -> numbers of the items it refers to."""

    def refer(self, request: Request, item: MultiModalItem) -> bool:
        found = super().refer(request, item)
        if found:
            self._note(request, item)
        return found

    def allocate(self, request: Request, item: MultiModalItem) -> None:
        super().allocate(request, item)
        self._note(request, item)

    def _note(self, request: Request, item: MultiModalItem) -> None:
        self._items.setdefault(request.request_id, set()).add(request.mm_features.index(item))

    def release(self, request: Request, item: MultiModalItem) -> None:
        others = self._items.get(request.request_id, set())
        others.discard(request.mm_features.index(item))
        if not others:
            self._items.pop(request.request_id, None)
        is_held = any(request.mm_features[i].mm_hash == item.mm_hash for i in others)
        if not (is_held and self._profile.encoder_holds_repeated):
            super().release(request, item)

    def forget(self, request: Request, item: MultiModalItem) -> None:
        super().forget(request, item)
        self._items.get(request.request_id, set()).discard(request.mm_features.index(item))

    def _cached_items(self, request: Request) -> list[MultiModalItem]:
        return [request.mm_features[i] for i in self._items.get(request.request_id, ())]

    def _passed_tokens(self, request: Request) -> int:
        unsure = request.num_output_placeholders if self._profile.encoder_waits_for_tokens else 0
        return request.num_computed_tokens - unsure - self._lag

    def take_evicted(self) -> tuple[str, ...]:
        evicted = super().take_evicted()
        if not self._profile.encoder_tells_lost_only:
            return evicted
        return tuple([mm_hash for mm_hash in evicted if mm_hash not in self._users])

    def reset(self) -> None:
        super().reset()
        self._items.clear()


class EncoderDecoderCache(EncoderCache):
    """Cache of an encoder-decoder model: outputs are read once, by the cross attention of the step that computes them.

    Nothing is shared or kept. Like vLLM 0.22 it gives an item's room back with every step of its request, and once more
    at its end: ``num_free`` soon exceeds ``size`` and limits nothing.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._computed: list[str] = []
        """Content hashes of this step's items; workers drop them when the next step has run."""

    def refer(self, request: Request, item: MultiModalItem) -> bool:
        return False

    def make_room(self, num_embeds: int) -> bool:
        return num_embeds <= self.num_free

    def allocate(self, request: Request, item: MultiModalItem) -> None:
        self._computed.append(item.mm_hash)
        self.num_free -= item.num_embeds
        self.num_reclaimable = self.num_free

    def release(self, request: Request, item: MultiModalItem) -> None:
        self.num_free += item.num_embeds
        self.num_reclaimable = self.num_free

    def free(self, request: Request) -> None:
        for item in request.mm_features:
            self.release(request, item)

    def passed_items(self, request: Request) -> list[MultiModalItem]:
        return list(request.mm_features) if request.num_computed_tokens else []

    def take_evicted(self) -> tuple[str, ...]:
        evicted, self._evicted, self._computed = tuple(self._evicted), self._computed, []
        return evicted

    def reset(self) -> None:
        super().reset()
        self._computed.clear()

    def check_invariants(self) -> None:
        assert 0 <= self.num_free == self.num_reclaimable, "encoder cache overfull"
