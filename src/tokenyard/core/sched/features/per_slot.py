"""Small features over slots: Mamba states at block ends, routed experts."""

from __future__ import annotations

import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.config import CacheConfig, GroupKind, SchedulerConfig
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request
from tokenyard.core.sched.candidate import FeatureHook
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.outputs import ExpertIds
from tokenyard.errors import ConfigError

# ---------------------------------------------------------------------------------------------------------------------
# Mamba states at block ends: in cache mode ``align`` a step keeps the state it ends with, so prefill has to end where
# blocks do.
#
#     known tokens   | block | block | block | rest |
#     steps            ------> ------------->  ---->     whole blocks, up to the last full one; then what is left


class BlockAlignment:
    """Cuts what a step may compute of a prompt."""

    def __init__(self, block_size: int, *, drops_last_hit: bool) -> None:
        self.block_size = block_size
        self._kept_back = block_size if drops_last_hit else 0
        """An EAGLE head drops the last matched block of full attention: the state before it has to be there."""

    def split(self, num_new_tokens: int, num_computed: int, num_tokens: int) -> int:
        """How many of ``num_new_tokens`` may follow ``num_computed`` of ``num_tokens`` known ones; perhaps none."""
        last = max(num_tokens // self.block_size * self.block_size - self._kept_back, 0)
        if num_computed + num_new_tokens < last:
            return num_new_tokens // self.block_size * self.block_size
        return num_new_tokens if num_computed >= last else last - num_computed

    def split_request(self, request: Request, num_new_tokens: int, num_computed: int) -> int:
        """:meth:`split` for a request."""
        return self.split(num_new_tokens, num_computed, request.num_tokens)

    def admit_request(self, request: Request, num_new_tokens: int, num_computed: int) -> int:
        """:meth:`split` for a request that is being admitted."""
        return self.split_request(request, num_new_tokens, num_computed)


class JunctionAlignment(BlockAlignment):
    """As vLLM 0.24: when it is admitted, a request stops where prompts part, if a block or more is left up to there.

    For a request without a cache lookup, the junction of the last lookup counts.
    """

    def __init__(self, kv: KVCacheManager, *, drops_last_hit: bool) -> None:
        super().__init__(kv.config.block_size, drops_last_hit=drops_last_hit)
        self._kv = kv

    def admit_request(self, request: Request, num_new_tokens: int, num_computed: int) -> int:
        granted = self.split_request(request, num_new_tokens, num_computed)
        if request.num_computed_tokens or num_computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return granted
        shared = self._kv.shared_beyond_hit
        return shared // self.block_size * self.block_size if self.block_size <= shared < granted else granted


class StateAlignment(BlockAlignment):
    """As vLLM since 0.26: chunks end where blocks do, and at the state that others will resume from.

    Since 0.27 every chunk but the last does; a block that no step can compute whole is come to the end of in parts.
    """

    def __init__(self, block_size: int, config: SchedulerConfig, *, drops_last_hit: bool) -> None:
        super().__init__(block_size, drops_last_hit=drops_last_hit)
        self._max_chunk = min(
            config.max_num_batched_tokens, config.long_prefill_token_threshold or config.max_num_batched_tokens
        )
        self._all_but_last = config.profile.chunks_end_at_states
        self._leaves_token = config.profile.last_state_leaves_token and not self._kept_back

    def split_request(self, request: Request, num_new_tokens: int, num_computed: int) -> int:
        size, start, end = self.block_size, num_computed, num_computed + num_new_tokens
        # What a preempted request has put out is computed again like a prompt.
        prefill_end = max(request.num_prompt_tokens, request.num_tokens - 1)
        if start >= prefill_end:
            return num_new_tokens
        last, next_block = self._last_state(request.num_tokens), (start // size + 1) * size
        whole = end // size * size
        is_short = end < (prefill_end if self._all_but_last else last)
        if is_short and (whole > start or size <= self._max_chunk or not self._all_but_last):
            end = whole
        junction = request.shared_prefix_boundary
        stops = [last]
        if start % size and (self._all_but_last or next_block <= last):
            stops.append(next_block)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        return max(min((stop for stop in stops if start < stop < end), default=end) - start, 0)

    def _last_state(self, num_tokens: int) -> int:
        """The last position that a request with the same tokens can resume at: one of them is computed again."""
        return max((num_tokens - self._leaves_token) // self.block_size * self.block_size - self._kept_back, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Routed experts of mixture-of-experts models: kept per KV slot, returned with the tokens they belong to.
#
# A worker returns the experts of every token it computes. A client wants them per request: the whole prompt's with
# its first output token, then those of each further token. A prompt may have been computed in several steps, or by
# another request that shared its prefix; so they are kept where the KV is kept, by block and place:
#
#   | experts[block * block_size + place]


class RoutedExperts(FeatureHook):
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
        """The experts of a step's tokens: keep them; returns those that go out with this step, by row.

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
