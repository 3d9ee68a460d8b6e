"""vLLM's scheduler, requests and outputs as the recorder asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.request import BlockHash, RequestStatus, RequestTimes
from tokenyard.core.sched.observer import Counts, Gauges
from tokenyard.errors import RequestError
from tokenyard.vllm.versions import JobTurn, job_of, max_running, status_name, turn_of, waiting_queues

# ---------------------------------------------------------------------------------------------------------------------
# How many blocks running requests may ask for in the next step: only where that is more than are free is memory
# short.
#
# Watching allocations costs two more calls per running request, so it is worth knowing when none can be refused.


class Demand:
    """How much the requests of one vLLM scheduler ask for. Never too low: an unwatched refusal would have no reason."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        block_size = int(scheduler.block_size)
        sizes = [group.kv_cache_spec.block_size for group in scheduler.kv_cache_config.kv_cache_groups]
        self._groups = len(sizes)
        self._one_step = self._groups * (int(scheduler.max_num_scheduled_tokens) // block_size + 1)
        # Drafts take slots ahead, and blocks of other sizes are not full when ours are.
        plain = scheduler.vllm_config.speculative_config is None and set(sizes) == {block_size}
        self._block_size = block_size if plain else 0
        """Tokens per block of all groups; 0 where that does not say who needs one."""
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
        # One token each: a request that has filled its last block needs another.
        return num_free < groups * [request.num_computed_tokens % size for request in running].count(0)


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's requests as the recorder asks for them.


class _SamplingLimits:
    """What a trace records of sampling parameters."""

    __slots__ = ("ignore_eos", "min_tokens")

    def __init__(self, params: Any) -> None:
        self.min_tokens: int = getattr(params, "min_tokens", 0) or 0
        self.ignore_eos: bool = bool(getattr(params, "ignore_eos", False))


class _Item:
    """An image, clip or video in a prompt."""

    __slots__ = ("length", "mm_hash", "offset")

    def __init__(self, feature: Any) -> None:
        place = feature.mm_position
        self.mm_hash = str(getattr(feature, "identifier", None) or getattr(feature, "mm_hash", ""))
        self.offset, self.length = int(place.offset), int(place.length)


def _turn(theirs: Any) -> JobTurn:
    """What its client says of its job; vLLM's scheduler serves requests whose extra arguments mean nothing to us."""
    try:
        return turn_of(theirs)
    except RequestError:
        return JobTurn(job_of(theirs))


class TracedRequest:
    """A request of vLLM's, under the names of ours; what it does not say itself is read from vLLM's.

    ``theirs`` is only ever read.
    """

    arrival_time: float
    block_hashes: list[BlockHash]
    cache_salt: str | None
    is_prefill_chunk: bool
    max_tokens: int
    num_computed_tokens: int
    num_preemptions: int
    num_prompt_tokens: int
    num_tokens: int
    priority: int

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs
        self.request_id: str = theirs.request_id
        self.job_id, self.is_last_step, self.this_func_call = _turn(theirs)
        self.sampling_params = _SamplingLimits(theirs.sampling_params)
        self.lora_name: str | None = theirs.lora_request.lora_name if theirs.lora_request else None
        self.mm_features = [_Item(feature) for feature in theirs.mm_features or ()]
        self.times = RequestTimes()
        self.local_hit_tokens: int | None = None
        """What the last prefix lookup found before it was first scheduled; None if there was none."""
        self.num_external_computed_tokens = 0
        self._hit_tokens = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)

    @property
    def status(self) -> RequestStatus:
        """Where it is in its life."""
        return RequestStatus[status_name(self.theirs)]

    @property
    def num_cached_tokens(self) -> int:
        """Prefix hits when it was first scheduled, local and external; -1 before."""
        return self._hit_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens of its output so far."""
        return int(self.theirs.num_output_tokens)

    @property
    def resumable(self) -> bool:
        """It is a session whose input comes in pieces."""
        return bool(self.theirs.resumable)

    def first_scheduled(self, ts: float, num_computed_tokens: int) -> tuple[int, int]:
        """It was admitted for the first time with so many tokens computed; returns local and external hits."""
        self.times.first_scheduled = ts
        self._hit_tokens = num_computed_tokens
        local = (
            num_computed_tokens if self.local_hit_tokens is None else min(self.local_hit_tokens, num_computed_tokens)
        )
        self.num_external_computed_tokens = num_computed_tokens - local
        return local, num_computed_tokens - local

    def token_slice(self, start: int, stop: int) -> IntArray:
        """Its tokens from ``start`` to ``stop``; only per-request records hold any."""
        return np.asarray(self.theirs.all_token_ids[start:stop], np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's records of a step as the recorder asks for them: only what it asks, and only when it does.


class _DraftCounts(msgspec.Struct, frozen=True):
    """Draft tokens that a step verified."""

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens_per_pos: IntArray


class TracedOutput:
    """A ``SchedulerOutput`` of vLLM's, as far as a trace shows it."""

    def __init__(self, step: int, theirs: Any, num_admitted: int, preempted: Sequence[str]) -> None:
        """``num_admitted``: how many it admits; they stand behind all that were running."""
        self.step = step
        self.theirs = theirs
        self.total_num_scheduled_tokens: int = theirs.total_num_scheduled_tokens
        self.num_running = len(theirs.num_scheduled_tokens) - num_admitted
        self.admitted_new: list[int] = []
        """Rows admitted for the first time."""
        self.admitted_resumed: list[int] = []
        """Rows admitted again after a preemption."""
        self.preempted_req_ids = preempted
        self._computed: dict[int, int] = {}
        self._ids: tuple[str, ...] | None = None
        self._tokens: IntArray | None = None

    @property
    def req_ids(self) -> tuple[str, ...]:
        """Ids in scheduling order: running ones, then admitted ones."""
        if self._ids is None:
            self._ids = tuple(self.theirs.num_scheduled_tokens)
        return self._ids

    @property
    def num_new_tokens(self) -> IntArray:
        """Tokens of each row, shape ``[n]``."""
        if self._tokens is None:
            tokens = self.theirs.num_scheduled_tokens
            self._tokens = np.fromiter(tokens.values(), np.int64, len(tokens))
        return self._tokens

    @property
    def num_computed(self) -> dict[int, int]:
        """Admitted row -> tokens it had computed before the step."""
        return self._computed

    def admit(self, row: int, num_computed: int, *, is_new: bool) -> None:
        """Row ``row`` joined in this step."""
        (self.admitted_new if is_new else self.admitted_resumed).append(row)
        self._computed[row] = num_computed


class _Stats:
    """Lengths of the queues, and drafts that were verified."""

    __slots__ = ("num_running_reqs", "num_skipped_waiting_reqs", "num_waiting_reqs", "spec_decoding_stats")

    def __init__(self, running: int, waiting: int, drafts: _DraftCounts | None) -> None:
        self.num_running_reqs, self.num_waiting_reqs, self.num_skipped_waiting_reqs = running, waiting, 0
        self.spec_decoding_stats = drafts


class TakenIn:
    """What a step brought."""

    __slots__ = ("num_sampled", "scheduler_stats", "streamed_req_ids")

    def __init__(self, outputs: Any, running: int, waiting: int, stats: Any) -> None:
        """``outputs``: the ``EngineCoreOutputs`` by client; ``stats``: the step's ``SpecDecodingStats``, or None."""
        self.streamed_req_ids: list[str] = []
        self.num_sampled = 0
        for client in outputs.values():
            for each in client.outputs:  # a plain loop is the fastest: a third of the time of map() and sum()
                if each.new_token_ids:
                    self.num_sampled += len(each.new_token_ids)
                    self.streamed_req_ids.append(each.request_id)
        drafts = None
        if stats is not None and stats.num_drafts:
            accepted = np.asarray(stats.num_accepted_tokens_per_pos, np.int64)
            drafts = _DraftCounts(stats.num_drafts, stats.num_draft_tokens, accepted)
        self.scheduler_stats = _Stats(running, waiting, drafts)


# ---------------------------------------------------------------------------------------------------------------------
# What the recorder may see of vLLM's scheduler: the same questions that ours answers.


class _Queue:
    """One of vLLM's waiting queues, to be looked at."""

    __slots__ = ("_known", "_queue")

    def __init__(self, queue: Any, known: dict[str, TracedRequest]) -> None:
        self._queue = queue
        self._known = known

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[TracedRequest]:
        for request in self._queue:
            traced = self._known.get(request.request_id)
            if traced is not None:
                yield traced


class TracedState:
    """A ``SchedulerState`` over a vLLM scheduler.

    ``known``: request id -> request, of all that vLLM has been given; its keeper says when the running list has
    changed.
    """

    def __init__(self, scheduler: Any, known: dict[str, TracedRequest]) -> None:
        self._scheduler = scheduler
        self._known = known
        self._manager = scheduler.kv_cache_manager
        self._pool = self._manager.block_pool
        self.queues = waiting_queues(scheduler)
        first, second = self.queues
        self.skipped_waiting, self.waiting = _Queue(first, known), _Queue(second, known)
        self.block_size = int(scheduler.block_size)
        self.max_num_scheduled_tokens = int(scheduler.max_num_scheduled_tokens)
        self.max_num_running_reqs = max_running(scheduler)
        self.num_total_blocks = int(self._pool.num_gpu_blocks)
        self.running_version = 0
        self.waiting_reorders = False

    @property
    def running(self) -> Sequence[TracedRequest]:
        """Requests in running order."""
        known = self._known
        found = [known.get(request.request_id) for request in self._scheduler.running]
        return [request for request in found if request is not None]

    @property
    def pinned(self) -> Sequence[TracedRequest]:
        """No request: vLLM pins nothing."""
        return ()

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue."""
        return int(self._pool.get_num_free_blocks())

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""
        return len(self._pool.cached_block_hash_to_block)

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """None: vLLM's connectors do not say."""
        return None

    @property
    def num_waiting(self) -> int:
        """Requests in both waiting queues."""
        first, second = self.queues
        return len(first) + len(second)

    def counts(self) -> Counts:
        """What statistics take of every step."""
        return Counts(self.num_free_blocks, len(self._scheduler.running), self.num_waiting, None)

    def gauges(self) -> Gauges:
        """What may change with every step."""
        first, second = self.queues
        num_first = len(first)
        return Gauges(
            self.running_version,
            self._pool.get_num_free_blocks(),
            len(self._pool.cached_block_hash_to_block),
            num_first + len(second),
            num_first,
            0,
            None,
        )

    def num_blocks_of(self, request: TracedRequest) -> int:
        """Blocks the request holds, all groups together."""
        blocks = self._manager.get_blocks(request.request_id).blocks
        return sum(map(len, blocks))
