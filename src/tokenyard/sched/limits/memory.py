"""The last limit of the admission pass: memory. A yes has allocated."""

from __future__ import annotations

from tokenyard.config import SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.kv.new_blocks import Blocks
from tokenyard.kv.shortage import KVLimit, KVShortage
from tokenyard.request import RequestStatus
from tokenyard.sched.features.features import Features
from tokenyard.sched.features.pins import PinBoard
from tokenyard.sched.limits.candidate import Candidate
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.outcomes import Outcome, OutcomeKind, Reason

__all__ = ["MemoryLimit"]

_KV_REASONS = {
    KVLimit.FULL_SEQUENCE: Reason.KV_FULL_SEQUENCE,
    KVLimit.BLOCKS: Reason.KV_BLOCKS,
    KVLimit.WATERMARK: Reason.KV_WATERMARK,
    KVLimit.STATE_NOT_READY: Reason.MAMBA_STATE_NOT_READY,
}


class MemoryLimit:
    """Is there memory? The last question: a yes has allocated."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        running: RunningList,
        features: Features,
        pins: PinBoard,
    ) -> None:
        self._reserve_full = config.scheduler_reserve_full_isl
        self._counts_lookups = config.profile.lookups_count_at_admission
        self._kv = kv
        self._running = running
        self._encoder = features.encoder
        self._transfers = features.transfers
        self._num_lookahead_tokens = features.num_lookahead_tokens
        self._reserves_lookahead = config.profile.admission_reserves_lookahead
        self._pins = pins

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        answer = self._kv.allocate_slots(
            candidate.request,
            candidate.num_new_tokens,
            computed=candidate.computed,
            num_lookahead_tokens=self._num_lookahead_tokens if self._looks_ahead(candidate) else 0,
            num_external_computed_tokens=candidate.num_external_computed_tokens,
            delay_cache_blocks=candidate.loads_async,
            num_encoder_tokens=candidate.num_encoder_tokens,
            full_sequence_must_fit=self._reserve_full,
            must_fit=candidate.must_fit,
            keep_watermark=len(self._running) > 0,
        )
        if not isinstance(answer, KVShortage):
            self._took_encoder_items(candidate, budget)
            if self._counts_lookups and candidate.computed is not None:
                self._kv.count_lookup(candidate.request, candidate.computed)
            return self._after_alloc(candidate, answer, budget) if self._transfers is not None else None
        if self._encoder is not None:
            self._encoder.cache.free(candidate.request)
        shortage, smallest = self._shortage(answer), room.smallest_need()
        if shortage is not None and smallest is not None:
            smallest = min(smallest, shortage.needed)  # the head waits as well, and its hits are known
        return Outcome(
            OutcomeKind.STOPPED,
            _KV_REASONS[answer.limit],
            candidate.request.request_id,
            len(room),
            kv=shortage,
            wanted_tokens=candidate.num_new_tokens,
            budget_left=budget.tokens,
            smallest_need=smallest,
        )

    def _looks_ahead(self, candidate: Candidate) -> bool:
        """Whether its lookahead slots are taken now, or with the first tokens after these."""
        if self._reserves_lookahead:
            return not candidate.loads_async
        return candidate.request.num_computed_tokens > 0

    def _shortage(self, answer: KVShortage) -> KVShortage | None:
        """The blocks of a refusal; None if they were not the obstacle."""
        if answer.limit is KVLimit.STATE_NOT_READY:
            return None
        return answer._replace(pinned=sum(map(self._kv.num_blocks_of, self._pins))) if len(self._pins) else answer

    def _after_alloc(self, candidate: Candidate, blocks: Blocks, budget: StepBudget) -> Outcome | None:
        """Tell the connector; a request that has to wait for its load is passed over with its blocks in hand."""
        assert self._transfers is not None
        request, external = candidate.request, candidate.num_external_computed_tokens
        self._transfers.connector.update_state_after_alloc(request, blocks, external)
        if candidate.computed is not None:
            queried = request.num_tokens - candidate.num_local_hit_tokens
            self._transfers.stats.record(queried, external, preempted=request.num_preemptions > 0)
        if not candidate.loads_async:
            return None
        request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
        request.num_computed_tokens = candidate.num_computed_tokens
        self._transfers.local_hits[request.request_id] = candidate.num_local_hit_tokens
        return Outcome(
            OutcomeKind.SKIPPED, Reason.ASYNC_KV_LOAD_STARTED, request.request_id, 1, budget_left=budget.tokens
        )

    def _took_encoder_items(self, candidate: Candidate, budget: StepBudget) -> None:
        request, encoder = candidate.request, self._encoder
        if encoder is not None:
            encoder.commit(request, candidate.encoder_items, budget)
            encoder.note_position(request, candidate.num_computed_tokens)
