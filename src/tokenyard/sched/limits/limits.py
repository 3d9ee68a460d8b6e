"""The limits of the admission pass: small objects with one question each, asked in vLLM's order.

An answer is a value: None (granted) or an :class:`~tokenyard.sched.steps.outcomes.Outcome` that says *skipped* (try
the next request) or *stopped* (no more admissions), with its numbers. A further feature is a further limit in the list.
"""

from __future__ import annotations

from tokenyard.config import SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.block_alignment import BlockAlignment
from tokenyard.sched.features.encoder import EncoderInputs
from tokenyard.sched.features.transfers import Transfers
from tokenyard.sched.limits.candidate import Candidate
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.outcomes import Outcome, OutcomeKind, Reason

__all__ = [
    "AlignmentLimit",
    "ConnectorLookup",
    "EncoderLimit",
    "LoraLimit",
    "PrefillLimit",
    "PrefixLookup",
    "ReadyLimit",
]


_BLOCKED_REASONS = {
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR: Reason.WAITING_GRAMMAR,
    RequestStatus.WAITING_FOR_REMOTE_KVS: Reason.WAITING_REMOTE_KV,
    RequestStatus.WAITING_FOR_STREAMING_REQ: Reason.WAITING_STREAM_INPUT,
}


class ReadyLimit:
    """Has what the request waited for come? Then it is WAITING again."""

    def __init__(self, transfers: Transfers | None) -> None:
        self._transfers = transfers

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        request = candidate.request
        if not request.status.is_blocked:
            return None
        if self._has_become_ready(request):
            candidate.num_computed_tokens = request.num_computed_tokens
            return None
        reason = _BLOCKED_REASONS[request.status]
        return Outcome(OutcomeKind.SKIPPED, reason, request.request_id, 1, budget_left=budget.tokens)

    def _has_become_ready(self, request: Request) -> bool:
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS:
            return self._transfers is not None and self._transfers.promote(request)
        grammar = request.structured_output
        if request.status is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR and grammar and grammar.is_ready:
            request.status = RequestStatus.WAITING
            return True
        return False


class LoraLimit:
    """Is there a place for its LoRA adapter among those of this step?"""

    def __init__(self, max_loras: int) -> None:
        self._max_loras = max_loras

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        lora = candidate.request.lora_name
        if not lora or lora in budget.loras or len(budget.loras) < self._max_loras:
            return None
        return Outcome(
            OutcomeKind.SKIPPED, Reason.LORA_SLOTS, candidate.request.request_id, 1, budget_left=budget.tokens
        )


class PrefixLookup:
    """How much of the request is cached? Never refuses."""

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> None:
        if candidate.request.num_computed_tokens == 0:
            candidate.computed = self._kv.get_computed_blocks(candidate.request)
            candidate.num_computed_tokens = candidate.num_local_hit_tokens


class ConnectorLookup:
    """How much more can the connector bring? Refuses only while it does not know."""

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        request = candidate.request
        if candidate.computed is None:
            return None
        match = self._transfers.connector.get_num_new_matched_tokens(request, candidate.num_local_hit_tokens)
        if match.num_tokens is None:
            return Outcome(
                OutcomeKind.SKIPPED, Reason.CONNECTOR_UNDECIDED, request.request_id, 1, budget_left=budget.tokens
            )
        # The last token is computed for its logits. A request that waits for its load may get it brought all the same,
        # and computes it again; but one that has no other token would be back where it was, with blocks in hand.
        num_left = 0 if match.is_async and request.num_tokens > 1 else 1
        external = min(match.num_tokens, request.num_tokens - candidate.num_local_hit_tokens - num_left)
        candidate.num_external_computed_tokens = external
        candidate.num_computed_tokens += external
        candidate.loads_async = match.is_async and external > 0
        return None


class PrefillLimit:
    """How many tokens fit this step? Without chunking a prompt must fit the rest of the budget whole."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._threshold = config.long_prefill_token_threshold
        self._chunked = config.enable_chunked_prefill
        self._kind = OutcomeKind.SKIPPED if config.skip_oversized_prefill else OutcomeKind.STOPPED

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        if candidate.loads_async:
            return None
        wanted = candidate.request.num_tokens - candidate.num_computed_tokens
        if 0 < self._threshold < wanted:
            wanted = self._threshold
        if not self._chunked and wanted > budget.tokens:
            return Outcome(
                self._kind,
                Reason.PREFILL_EXCEEDS_BUDGET,
                candidate.request.request_id,
                1 if self._kind is OutcomeKind.SKIPPED else len(room),
                wanted_tokens=wanted,
                budget_left=budget.tokens,
            )
        candidate.num_new_tokens = min(wanted, budget.tokens)
        return None


class EncoderLimit:
    """Can the encoder inputs of its tokens be computed in this step? If not, only the tokens before them."""

    def __init__(self, encoder: EncoderInputs) -> None:
        self._encoder = encoder

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        request, wanted = candidate.request, candidate.num_new_tokens
        if not request.mm_features or candidate.loads_async:
            return None
        grant = self._encoder.plan(request, candidate.num_computed_tokens, wanted, budget.encoder)
        candidate.num_new_tokens, candidate.encoder_items = grant
        candidate.num_encoder_tokens = self._encoder.num_cross_tokens(request, grant.items)
        if grant.num_new_tokens:
            return None
        return Outcome(
            OutcomeKind.STOPPED,
            Reason.ENCODER_BUDGET,
            request.request_id,
            len(room),
            wanted_tokens=wanted,
            budget_left=budget.encoder,
        )


class AlignmentLimit:
    """Does a step that keeps a Mamba state end where a block does? If not, only the whole blocks before."""

    def __init__(self, alignment: BlockAlignment) -> None:
        self._alignment = alignment

    def ask(self, candidate: Candidate, budget: StepBudget, room: WaitingQueues) -> Outcome | None:
        request, wanted = candidate.request, candidate.num_new_tokens
        granted = self._alignment.split(wanted, candidate.num_computed_tokens, request.num_tokens)
        candidate.num_new_tokens = granted
        if granted:
            return None
        return Outcome(
            OutcomeKind.STOPPED,
            Reason.MAMBA_ALIGNMENT,
            request.request_id,
            len(room),
            wanted_tokens=wanted,
            budget_left=budget.tokens,
        )
