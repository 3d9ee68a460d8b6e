"""Routed experts of mixture-of-experts models: kept per KV slot, told with the tokens they belong to.

A worker returns the experts of every token it computes. A client wants them per request: the whole prompt's with its
first output token, then those of each further token. A prompt may have been computed in several steps, or by another
request that shared its prefix; so they are kept where the KV is kept, by block and place:

    experts[block * block_size + place]
"""

from __future__ import annotations

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.config import CacheConfig, GroupKind
from tokenyard.errors import ConfigError
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.features.hooks import StepHook
from tokenyard.sched.steps.aux_output import ExpertIds
from tokenyard.sched.steps.in_flight import StepInFlight

__all__ = ["RoutedExperts"]


class RoutedExperts(StepHook):
    """Book-keeping of one scheduler; it needs a group of full attention, whose blocks are never given up early."""

    def __init__(self, config: CacheConfig, kv: KVCacheManager) -> None:
        self._kv = kv
        full = [i for i, group in enumerate(config.groups) if group.kind is GroupKind.FULL]
        if not full:
            raise ConfigError("enable_return_routed_experts", True, "needs a KV-cache group of full attention")
        self._group = full[0]
        self._size = config.groups[self._group].block_size or config.block_size
        self._num_slots = config.num_gpu_blocks * self._size
        self._by_slot: ExpertIds | None = None
        """Made when the first experts arrive and show their shape."""
        self._blocks: dict[int, list[IntArray]] = {}
        """Step -> block tables of its requests: a preemption may take them before its output arrives."""

    def step_planned(self, step: StepInFlight) -> None:
        """A step was made: note where its tokens go."""
        tables = [self._kv.get_block_ids(request)[self._group] for request in step.requests]
        self._blocks[step.plan.step] = [np.array(table, np.int64) for table in tables]

    def arrived(self, step: StepInFlight, experts: ExpertIds | None, counts: IntArray) -> dict[int, ExpertIds]:
        """The experts of a step's tokens: keep them; returns those to be told now, by row.

        ``counts`` has the output tokens per row, which are appended already. A row's first output comes with the whole
        prompt's experts; later ones with as many experts as tokens.
        """
        output = step.plan
        tables = self._blocks.pop(output.step, [])
        if experts is None:
            return {}
        if self._by_slot is None:
            self._by_slot = np.zeros((self._num_slots, *experts.shape[1:]), experts.dtype)
        ends = output.num_new_tokens.cumsum()
        told = {}
        for row, (request, table) in enumerate(zip(step.requests, tables, strict=True)):
            own = experts[ends[row] - output.num_new_tokens[row] : ends[row]]
            first = int(output.num_computed[row])
            self._by_slot[self._slots(table, first, first + len(own))] = own
            count = int(counts[row])
            if not count:
                continue
            if request.num_output_tokens == count:
                start = request.sampling_params.routed_experts_prompt_start
                told[row] = self._by_slot[self._slots(table, start, request.num_prompt_tokens)]
            else:
                # Accepted drafts are computed first, rejected ones last; without drafts the new token is the last.
                drafted = output.drafts is not None and output.drafts.counts[row] > 0
                told[row] = own[:count] if drafted else own[-count:]
        return told

    def _slots(self, table: IntArray, start: int, stop: int) -> IntArray:
        positions = np.arange(start, stop)
        slots: IntArray = table[positions // self._size] * self._size + positions % self._size
        return slots
