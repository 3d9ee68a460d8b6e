"""A KV-cache manager as the scheduler would use it, for tests that ask about memory alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.toy_engine import make_request, memory_state

from tokenyard.core.config import CacheConfig, GroupKind
from tokenyard.core.kv.allocation import Blocks, KVShortage, StepBlocks
from tokenyard.core.kv.groups import GroupBounds
from tokenyard.core.kv.hybrid import HybridKVCacheManager
from tokenyard.core.kv.manager import Demand, KVCacheManager
from tokenyard.core.request import Request

__all__ = ["Memory"]


class Memory:
    """A manager, and the steps a scheduler takes around an allocation."""

    def __init__(self, num_gpu_blocks: int = 10, block_size: int = 4, max_model_len: int = 64, **settings: Any) -> None:
        config = CacheConfig(num_gpu_blocks=num_gpu_blocks, block_size=block_size, **settings)
        is_single = [group.kind for group in config.groups] == [GroupKind.FULL]
        make = KVCacheManager if is_single else HybridKVCacheManager
        self.kv = make(config, GroupBounds(64, max_model_len))
        self.rows: list[Request] = []
        """Requests that have got tokens in this step."""

    @property
    def num_cached(self) -> int:
        """Distinct contents that a lookup can find."""
        return self.kv.num_cached_blocks

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
        short = self.kv.allocate_slots(Demand(request, num_new_tokens, hit, **options))
        if short is not None:
            return short
        self.rows.append(request)
        request.num_computed_tokens = hit.num_tokens + external + num_new_tokens
        return self.kv.get_block_ids(request)

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
        for token in tokens:
            request.append_token(token)
            if request.num_tokens % self.kv.hash_size == 0:
                self.kv.block_is_full(request)

    def new_step(self) -> None:
        """Begin a step that has given no blocks yet."""
        self.kv.new_step_starts()
        self.rows = []

    def grow(self, ends: dict[Request, int], num_lookahead_tokens: int = 0) -> int:
        """Room for running requests up to the given positions, as a running pass asks; returns how many were served."""
        for served, (request, end) in enumerate(ends.items()):
            request.first_new_block = request.blocks.size
            if not self.kv.grow(request, end, num_lookahead_tokens):
                return served
            self.rows.append(request)
        return len(ends)

    def blocks(self, request: Request) -> list[int]:
        return self.kv.get_block_ids(request)[0]

    def new_blocks(self) -> dict[str, tuple[list[int], ...]]:
        """Request id -> the blocks that it got in this step, per KV-cache group."""
        step = StepBlocks(self.kv.num_groups)
        for row, request in enumerate(self.rows):
            self.kv.gather_new_blocks(row, request, step)
        return {self.rows[row].request_id: blocks for row, blocks in step.deltas().by_row().items()}

    def state(self) -> Any:
        """Everything an allocation may change, by value."""
        return memory_state(self.kv), self.new_blocks()
