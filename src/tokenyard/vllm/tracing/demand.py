"""How many blocks running requests may ask for in the next step: only where that is more than are free is memory short.

Watching allocations costs two more calls per running request, so it is worth knowing when none can be refused.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Demand"]


class Demand:
    """Of one vLLM scheduler. Never too low: a refusal that nobody watches would have no reason."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        block_size = int(scheduler.block_size)
        sizes = [group.kv_cache_spec.block_size for group in scheduler.kv_cache_config.kv_cache_groups]
        self._groups = len(sizes)
        self._one_step = self._groups * (int(scheduler.max_num_scheduled_tokens) // block_size + 1)
        # Drafts take slots ahead, and blocks of other sizes are not full when ours are.
        plain = scheduler.vllm_config.speculative_config is None and set(sizes) == {block_size}
        self._block_size = block_size if plain else 0
        """Tokens per block of all groups; 0 where that does not tell who needs one."""
        self._all_decode = False

    def step_decided(self, output: Any) -> None:
        """If every running request got one token, none of them computes its prompt."""
        num_scheduled = len(output.num_scheduled_tokens)
        self._all_decode = output.total_num_scheduled_tokens == num_scheduled == len(self._scheduler.running)

    def exceeds(self, num_free: int) -> bool:
        """Whether the running requests may ask for more than ``num_free`` blocks."""
        running, groups = self._scheduler.running, self._groups
        if not self._all_decode:
            return num_free < 2 * groups * len(running) + self._one_step
        if num_free >= 2 * groups * len(running):
            return False
        if not self._block_size:
            return True
        size = self._block_size
        # One token each: whoever has filled its last block needs another.
        return num_free < groups * [request.num_computed_tokens % size for request in running].count(0)
