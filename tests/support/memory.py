"""A KV-cache manager as the scheduler would use it, for tests that ask about memory alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.support.toy_engine import make_request

from tokenyard.core.config import CacheConfig
from tokenyard.core.kv.allocation import Blocks, KVShortage
from tokenyard.core.kv.hybrid_coordinator import GroupBounds
from tokenyard.core.kv.manager import Demand, KVCacheManager
from tokenyard.core.kv.prefix_index import PrefixIndex
from tokenyard.core.request import Request
from tokenyard.core.table import RequestTable

__all__ = ["Memory"]


class Memory:
    """A manager, its table, and the steps a scheduler takes around an allocation."""

    def __init__(self, num_gpu_blocks: int = 10, block_size: int = 4, max_model_len: int = 64, **settings: Any) -> None:
        config = CacheConfig(num_gpu_blocks=num_gpu_blocks, block_size=block_size, **settings)
        self.table = RequestTable(4, block_size, num_groups=len(config.groups))
        self.kv = KVCacheManager(config, self.table, GroupBounds(64, max_model_len))

    @property
    def index(self) -> PrefixIndex:
        """The index of the one KV-cache group."""
        return self.kv.pool.indexes[0]

    @property
    def free(self) -> int:
        return self.kv.num_free_blocks

    def ask(self, request: Request, num_new_tokens: int | None = None, **options: Any) -> Blocks | KVShortage:
        """Look the prefix up and allocate, as admission does; by default for all tokens that were not found."""
        hit = self.kv.get_computed_blocks(request)
        self.kv.count_lookup(request, hit)
        external = options.get("num_external_computed_tokens", 0)
        if num_new_tokens is None:
            num_new_tokens = request.num_tokens - hit.num_tokens - external
        answer = self.kv.allocate_slots(Demand(request, num_new_tokens, hit, **options))
        if not isinstance(answer, KVShortage):
            request.num_computed_tokens = hit.num_tokens + external + num_new_tokens
        return answer

    def admit(
        self, name: str, prompt: int | Sequence[int], num_new_tokens: int | None = None, **options: Any
    ) -> Request:
        """A new request that must be admitted."""
        request = make_request(name, prompt)
        answer = self.ask(request, num_new_tokens, **options)
        assert not isinstance(answer, KVShortage), f"{name} was refused: {answer}"
        self.kv.check_invariants()
        return request

    def refused(self, name: str, prompt: int | Sequence[int], **options: Any) -> KVShortage:
        """What a new request that must not be admitted is told."""
        answer = self.ask(make_request(name, prompt), **options)
        assert isinstance(answer, KVShortage), f"{name} was admitted: {answer}"
        self.kv.check_invariants()
        return answer

    def finish(self, *requests: Request) -> None:
        for request in requests:
            self.kv.free(request)
        self.kv.check_invariants()

    def sample(self, request: Request, *tokens: int) -> None:
        """Append tokens to a running request, as the scheduler's update does."""
        slots = np.array([request.slot])
        for token in tokens:
            _, full = self.table.append(slots, np.array([token]))
            if len(full):
                self.kv.on_seal(self.table.seal(slots))

    def grow(self, ends: dict[Request, int], num_lookahead_tokens: int = 0) -> int:
        """Room for running requests up to the given positions; returns how many were served."""
        slots = np.array([request.slot for request in ends])
        return self.kv.grow_run(slots, np.array(list(ends.values())), num_lookahead_tokens)

    def blocks(self, request: Request) -> list[int]:
        return self.kv.get_block_ids(request)[0]

    def new_blocks(self) -> dict[int, tuple[list[int], ...]]:
        """Slot -> the blocks that its request got in this step, per KV-cache group."""
        slots = np.array([slot for slot, request in enumerate(self.table.requests) if request is not None], np.int64)
        given = self.kv.new_blocks.deltas(slots, np.zeros_like(self.table.row_in_step)).by_row()
        return {int(slots[row]): blocks for row, blocks in given.items()}

    def state(self) -> Any:
        """Everything an allocation may change, by value."""
        pool, table = self.kv.pool, self.table
        columns = {name: each.tolist() for name in dir(table) if hasattr(each := getattr(table, name), "tolist")}
        return (
            list(pool.free_queue),
            list(pool.ref),
            list(pool.hash_of),
            {key: pool.indexes[0].all_blocks(key) for key in pool.hash_of if key},
            self.kv.coordinator.holders(),
            columns,
            [request and request.request_id for request in table.requests],
            self.new_blocks(),
        )
