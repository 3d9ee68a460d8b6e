"""A step's decision: what goes to the workers.

Columns over the step's scheduled requests, in scheduling order; the dictionaries and records that hosts like vLLM
expect are derived on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.columns import IntArray
from tokenyard.kv.coordinator import Blocks
from tokenyard.request import Request, SamplingParams

__all__ = ["CachedRequestData", "NewRequestData", "ScheduledDrafts", "SchedulerOutput"]


class NewRequestData(NamedTuple):
    """A request scheduled for the first time: everything a worker needs."""

    request: Request
    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    block_ids: tuple[list[int], ...]
    """All its blocks, per KV-cache group."""
    num_computed_tokens: int
    lora_name: str | None


class CachedRequestData(NamedTuple):
    """Requests a worker knows: only what changed. Running ones first, then resumed ones."""

    req_ids: list[str]
    resumed_req_ids: frozenset[str]
    """Preempted earlier and admitted again: their block lists replace what the worker has."""
    all_token_ids: dict[str, list[int]]
    """Whole token streams of requests that were not scheduled in the previous step."""
    new_block_ids: list[tuple[list[int], ...] | None]
    """Per request and KV-cache group; None if it got no block."""
    num_computed_tokens: list[int]
    """Before this step."""
    num_output_tokens: list[int]


class ScheduledDrafts(NamedTuple):
    """Draft tokens to be verified in a step, aligned with its requests."""

    tokens: IntArray
    """Shape ``[n, max drafts]``; -1 for a draft that only the worker knows."""
    counts: IntArray
    """Drafts per request, shape ``[n]``."""


class SchedulerOutput:
    """One step's decision, as columns.

    ``requests[i]`` computes ``num_new_tokens[i]`` tokens from position ``num_computed[i]`` on. Order: running ones in
    running order, then admitted ones (new and resumed mixed) in admission order.
    """

    new_block_ids_to_zero: list[int] | None = None
    """Attention blocks taken since the previous step, for workers of models with Mamba layers to zero."""

    def __init__(
        self,
        *,
        step: int,
        requests: list[Request],
        slots: IntArray,
        num_new_tokens: IntArray,
        num_computed: IntArray,
        num_known: IntArray,
        num_placeholders: IntArray | None,
        drafts: ScheduledDrafts | None,
        num_running: int,
        total_num_scheduled_tokens: int,
        new_blocks: dict[int, Blocks],
        admitted_resumed: list[int],
        not_scheduled_before: list[int],
        preempted_req_ids: list[str],
        finished_req_ids: frozenset[str],
        is_prefill_chunk: npt.NDArray[np.bool_] | None,
        table_version: int,
        common_prefix: Callable[[], list[int]],
    ) -> None:
        self.step = step
        self.requests = requests
        self.slots = slots
        """Request-table slots, shape ``[n]``."""
        self.num_new_tokens = num_new_tokens
        """Tokens to compute, shape ``[n]``, all > 0."""
        self.num_computed = num_computed
        """Computed tokens before the step, shape ``[n]``."""
        self.num_known = num_known
        """Tokens known before the step (prompt and output), shape ``[n]``."""
        self.num_placeholders = num_placeholders
        """Output tokens in flight before the step, shape ``[n]``; None without async scheduling."""
        self.drafts = drafts
        """Drafts to verify; None: nowhere."""
        self.num_invalid_spec_tokens: IntArray | None = None
        """Of them, drafts per request that its grammar forbids, shape ``[n]``; None: not known, or none."""
        self.num_running = num_running
        """The first ``num_running`` requests were running before the step, the others are admitted in it."""
        self.total_num_scheduled_tokens = total_num_scheduled_tokens
        self.new_blocks = new_blocks
        """Slot -> blocks got in this step (all blocks, if admitted), per KV-cache group; absent: none."""
        self.admitted_resumed = admitted_resumed
        """Indices of requests admitted again after a preemption."""
        self.not_scheduled_before = not_scheduled_before
        """Indices of running requests that the previous step passed over: workers dropped their tokens."""
        self.preempted_req_ids = preempted_req_ids
        self.finished_req_ids = finished_req_ids
        """Finished since the previous step: workers drop their state."""
        self.is_prefill_chunk = is_prefill_chunk
        """Where known tokens are left after this step, so that nothing is sampled, shape ``[n]``; None: nowhere."""
        self.table_version = table_version
        """The request table's version when the step was made: ``slots`` holds while it has not changed."""
        self.scheduled_encoder_inputs: dict[str, list[int]] = {}
        """Request id -> indices of its multi-modal items whose encoder runs in this step."""
        self.free_encoder_mm_hashes: list[str] = []
        """Encoder outputs that workers may drop."""
        self.kv_connector_metadata: object = None
        """What the workers' half of a KV connector has to know."""
        self._common_prefix = common_prefix

    def replace_drafts(self, drafts: ScheduledDrafts, num_invalid: IntArray) -> None:
        """Drafts that only the worker knew have become known, ``num_invalid`` per request forbidden by its grammar."""
        self.drafts, self.num_invalid_spec_tokens = drafts, num_invalid
        self.__dict__.pop("scheduled_spec_decode_tokens", None)

    @property
    def admitted(self) -> list[int]:
        """Indices of all admitted requests."""
        return list(range(self.num_running, len(self.requests)))

    @cached_property
    def admitted_new(self) -> list[int]:
        """Indices of requests scheduled for the first time."""
        resumed = set(self.admitted_resumed)
        return [i for i in self.admitted if i not in resumed]

    @cached_property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Request id -> tokens, in scheduling order."""
        return dict(zip([r.request_id for r in self.requests], self.num_new_tokens.tolist(), strict=True))

    @cached_property
    def scheduled_spec_decode_tokens(self) -> dict[str, list[int]]:
        """Request id -> drafts to verify, for requests that have any."""
        if self.drafts is None:
            return {}
        return {
            request.request_id: tokens[:count]
            for request, tokens, count in zip(
                self.requests, self.drafts.tokens.tolist(), self.drafts.counts.tolist(), strict=True
            )
            if count
        }

    @cached_property
    def num_common_prefix_blocks(self) -> list[int]:
        """Leading blocks shared by all block holders, per KV-cache group (cascade attention).

        Counted when first asked for: ask before the next call that changes the scheduler.
        """
        return self._common_prefix()

    @cached_property
    def scheduled_new_reqs(self) -> list[NewRequestData]:
        """Requests scheduled for the first time, in full."""
        return [self._new(i) for i in self.admitted_new]

    def _new(self, i: int) -> NewRequestData:
        r = self.requests[i]
        return NewRequestData(
            r,
            r.request_id,
            r.prompt_token_ids,
            r.sampling_params,
            self.new_blocks[int(self.slots[i])],
            int(self.num_computed[i]),
            r.lora_name,
        )

    @cached_property
    def scheduled_cached_reqs(self) -> CachedRequestData:
        """All others, as deltas."""
        rows = [*range(self.num_running), *self.admitted_resumed]
        requests = [self.requests[i] for i in rows]
        beyond = self.num_known if self.num_placeholders is None else self.num_known + self.num_placeholders
        whole = [*self.not_scheduled_before, *self.admitted_resumed]
        return CachedRequestData(
            req_ids=[r.request_id for r in requests],
            resumed_req_ids=frozenset(self.requests[i].request_id for i in self.admitted_resumed),
            all_token_ids={
                self.requests[i].request_id: self.requests[i].token_slice(0, int(self.num_known[i])).tolist()
                for i in whole
            },
            new_block_ids=[self.new_blocks.get(slot) for slot in self.slots[rows].tolist()],
            num_computed_tokens=self.num_computed[rows].tolist(),
            num_output_tokens=[
                known - r.num_prompt_tokens for known, r in zip(beyond[rows].tolist(), requests, strict=True)
            ],
        )
