"""What vLLM's loop does with each waiting request, seen from outside.

The loop looks at the head of a queue, asks for cached blocks, asks for new ones, and takes the request from its queue
or stops. Each of these is a call of a small object; while a step in which a request waits is decided, those calls pass
through here. Nothing is answered differently, and none of it costs anything in a step in which none waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenyard.vllm.versions import encoder_transfers, lookup_methods


class RefusedAllocation:
    """An allocation that was refused."""

    __slots__ = ("free", "hits", "needs", "request", "reserved", "wanted_tokens", "whole_first")

    def __init__(
        self, request: Any, wanted_tokens: int, needs: Sequence[int], free: int, asked: dict[str, Any]
    ) -> None:
        self.request = request
        self.wanted_tokens = wanted_tokens
        self.needs = tuple(needs)
        """Blocks that it needed, each time the manager counted them: for the whole sequence, then for the step."""
        self.free = free
        """Blocks that were free."""
        self.reserved = int(asked.get("reserved_blocks") or 0)
        self.whole_first = bool(asked.get("full_sequence_must_fit"))
        found = asked.get("new_computed_blocks")
        self.hits = 0 if found is None else sum(block.ref_cnt == 0 for group in found.blocks for block in group)
        """Cached blocks of its own among the free ones."""


class Sighting:
    """One turn of a waiting request at the head of a queue."""

    __slots__ = ("looked_up", "refused", "request", "taken")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.looked_up: int | None = None
        """Tokens found in the prefix cache; None: not looked up."""
        self.refused: RefusedAllocation | None = None
        """Memory was requested, and refused."""
        self.taken = False
        """It left its queue: it was admitted or skipped."""


class Watch:
    """Sees one step at a time; ``failed`` is notified of an error of its own, which goes no further."""

    def __init__(
        self,
        scheduler: Any,
        queues: Sequence[Any],
        failed: Callable[[Exception], None],
        no_encoder_output: Callable[[Any], None],
    ) -> None:
        """``no_encoder_output`` gets the request that is left out because an encoder's output has not come."""
        self._manager = manager = scheduler.kv_cache_manager
        self._pool = manager.block_pool
        self._coordinator = manager.coordinator
        self._queues = queues
        self._failed = failed
        self._transfers = encoder_transfers(scheduler)
        self._no_encoder_output = no_encoder_output
        self._needs: list[int] = []
        self._admissions = False
        """Whatever happens to a waiting request in this step passes through here; ``_allocations``: to anybody."""
        self._allocations = False
        self._lookups = lookup_methods(manager)
        self.sightings: list[Sighting] = []
        """Requests in the order in which they were looked at."""
        self.refused: RefusedAllocation | None = None
        """The last refusal of the step, of a running or a waiting request."""
        self.granted: dict[str, int] = {}
        """Request -> tokens it was given blocks for, once allocations are watched."""
        self._replaced: list[tuple[Any, str, Any]] = []
        """What stands in front of a call, and what stood there before: vLLM's method, or another's replacement."""

    def begin(self, *, waiting: bool, short_of_memory: bool) -> None:
        """A step is about to be decided; allocations of running requests are watched if memory may be refused."""
        self.sightings.clear()
        self.refused = None
        self.granted.clear()
        if waiting:
            for queue in self._queues:
                self._replace(queue, "peek_request", self._seen(queue.peek_request, self._looked_at))
        if self._transfers is not None:
            self._replace(self._transfers, "ensure_cache_available", self._arrival(self._transfers))
        if short_of_memory:
            self._watch_allocations()

    def end(self) -> None:
        """The step is decided, or was not: everything is as it was."""
        for owner, name, before in reversed(self._replaced):
            if before is None:
                owner.__dict__.pop(name, None)
            else:
                setattr(owner, name, before)
        self._replaced.clear()
        self._admissions = self._allocations = False

    def _replace(self, owner: Any, name: str, watched: Callable[..., Any]) -> None:
        self._replaced.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, watched)

    # ---- what is put in front of vLLM's own

    def _seen(self, call: Callable[[], Any], note: Callable[[Any], None]) -> Callable[[], Any]:
        def watched() -> Any:
            request = call()
            try:
                note(request)
            except Exception as error:  # noqa: BLE001 - vLLM's loop goes on
                self._failed(error)
            return request

        return watched

    def _looked_at(self, request: Any) -> None:
        if not self._admissions:
            self._watch_admissions()
        if not self.sightings or self.sightings[-1].request is not request or self.sightings[-1].taken:
            self.sightings.append(Sighting(request))

    def _watch_admissions(self) -> None:
        """A request is looked at: in most steps in which one waits none is, since there is no seat."""
        self._admissions = True
        for queue in self._queues:
            self._replace(queue, "pop_request", self._seen(queue.pop_request, self._took))
        for name in self._lookups:
            self._replace(self._manager, name, self._lookup(getattr(self._manager, name)))
        if not self._allocations:
            self._watch_allocations()

    def _took(self, request: Any) -> None:
        for sighting in reversed(self.sightings):
            if sighting.request is request:
                sighting.taken = True
                return

    def _lookup(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(request: Any, *args: Any, **options: Any) -> Any:
            found = call(request, *args, **options)
            try:
                self._note_lookup(request, found)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)
            return found

        return watched

    def _note_lookup(self, request: Any, found: Any) -> None:
        if self.sightings and self.sightings[-1].request is request:
            self.sightings[-1].looked_up = int(found[1])

    def _arrival(self, transfers: Any) -> Callable[..., bool]:
        ask = transfers.ensure_cache_available

        def ensure_cache_available(request: Any, *args: Any, **options: Any) -> bool:
            has_come: bool = ask(request, *args, **options)
            if not has_come:
                try:
                    self._no_encoder_output(request)
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(error)
            return has_come

        return ensure_cache_available

    def _watch_allocations(self) -> None:
        needs, granted = self._needs, self.granted
        count, allocate = self._coordinator.get_num_blocks_to_allocate, self._manager.allocate_slots

        def get_num_blocks_to_allocate(*args: Any, **options: Any) -> int:
            needed: int = count(*args, **options)
            needs.append(needed)
            return needed

        def allocate_slots(request: Any, num_new_tokens: int, *args: Any, **options: Any) -> Any:
            needs.clear()
            blocks = allocate(request, num_new_tokens, *args, **options)
            if blocks is not None:
                granted[request.request_id] = num_new_tokens
                return blocks
            try:
                self._note_refusal(request, num_new_tokens, options)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)
            return blocks

        self._replace(self._coordinator, "get_num_blocks_to_allocate", get_num_blocks_to_allocate)
        self._replace(self._manager, "allocate_slots", allocate_slots)
        self._allocations = True

    def _note_refusal(self, request: Any, num_new_tokens: int, asked: dict[str, Any]) -> None:
        free = int(self._pool.get_num_free_blocks())
        self.refused = RefusedAllocation(request, num_new_tokens, self._needs, free, asked)
        if self.sightings and self.sightings[-1].request is request:
            self.sightings[-1].refused = self.refused
