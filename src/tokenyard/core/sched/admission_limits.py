"""The limits of the admission pass: small objects with one question each, in vLLM's order."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.core.config import SchedulerConfig
from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.kv.manager import Demand, KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.calls import asked
from tokenyard.core.sched.candidate import AdmissionLimit, Candidate, Refused, StepBudget
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.ahead import LateOutputs
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.per_slot import BlockAlignment
from tokenyard.core.sched.features.sessions import PinBoard
from tokenyard.core.sched.features.transfers import Transfers
from tokenyard.core.sched.outcomes import BLOCKED_REASONS, KV_REASONS, Outcome, OutcomeKind, Reason
from tokenyard.core.sched.policy import AdmissionView, PolicyGate
from tokenyard.core.sched.queues import RunningList, WaitingQueues
from tokenyard.errors import PolicyError, shown

# To ask their classes for them costs more than to compare.
_STOPPED, _STATE_NOT_READY = OutcomeKind.STOPPED, KVLimit.STATE_NOT_READY

# ---------------------------------------------------------------------------------------------------------------------
# The limits of single features. A further feature is a further limit in the list at the end of this file.
#
# An answer is a value: None (granted) or an :class:`~tokenyard.core.sched.outcomes.Outcome` that says *skipped* (try
# the next request) or *stopped* (no more admissions), with its numbers.


class Limit:
    """One question to a candidate."""

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        """None if it may go on; else why not."""
        raise NotImplementedError


class ReadyLimit(Limit):
    """Has what the request waited for come? Then it is WAITING again."""

    def __init__(self, transfers: Transfers | None, grammars: GrammarGate) -> None:
        self._transfers: Transfers | None = transfers
        self._grammars: GrammarGate = grammars

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        request = candidate.request
        if not request.status.is_blocked:
            return None
        if self._has_become_ready(request):
            candidate.num_computed_tokens = request.num_computed_tokens
            return None
        reason = Reason.HOOK_FAILED if self._grammars.has_failed(request) else BLOCKED_REASONS[request.status]
        return candidate.skipped(reason, budget)

    def _has_become_ready(self, request: Request) -> bool:
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS:
            return self._transfers is not None and self._transfers.promote(request)
        waits = request.status is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        if not waits or not self._grammars.is_ready(request):
            return False
        request.status = RequestStatus.WAITING
        return True


class LateOutputLimit(Limit):
    """Has every output come that a step was computing when the request was preempted?"""

    def __init__(self, outputs: LateOutputs) -> None:
        self._outputs: LateOutputs = outputs

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        request = candidate.request
        if not self._outputs.expects(request):
            return None
        return candidate.skipped(Reason.NO_NEW_TOKENS, budget)


class LoraLimit(Limit):
    """Is there a place for its LoRA adapter among those of this step?"""

    def __init__(self, max_loras: int) -> None:
        self._max_loras: int = max_loras

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        lora = candidate.request.lora_name
        if not lora or lora in budget.loras or len(budget.loras) < self._max_loras:
            return None
        return candidate.skipped(Reason.LORA_SLOTS, budget)


class PrefixLookup(Limit):
    """How much of the request is cached? Never refuses."""

    def __init__(self, kv: KVCacheManager, *, counts: bool) -> None:
        """``counts``: every lookup enters the statistics, even if the request is not admitted then."""
        self._kv: KVCacheManager = kv
        self._counts: bool = counts

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> None:
        if candidate.request.num_computed_tokens == 0:
            candidate.computed = self._kv.get_computed_blocks(candidate.request)
            candidate.num_computed_tokens = candidate.request.num_hit_tokens = candidate.num_local_hit_tokens
            if self._counts:
                self._kv.count_lookup(candidate.request, candidate.computed)


class ConnectorLookup(Limit):
    """How much more can the connector bring? Refuses only while it does not know."""

    def __init__(self, transfers: Transfers) -> None:
        self._transfers: Transfers = transfers

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        request = candidate.request
        if candidate.computed is None:
            return None
        local = candidate.num_local_hit_tokens
        match = self._transfers.match(request, local)
        if match.num_tokens is None:
            return candidate.skipped(Reason.CONNECTOR_UNDECIDED, budget)
        # The last token is computed for its logits. A request that waits for its load may get it brought all the same,
        # and computes it again; but one that has no other token would be back where it was, with blocks in hand.
        num_left = 0 if match.is_async and request.num_tokens > 1 else 1
        external = min(match.num_tokens, request.num_tokens - local - num_left)
        candidate.num_external_computed_tokens = external
        candidate.num_computed_tokens += external
        candidate.loads_async = match.is_async and external > 0
        return None


class PrefillLimit(Limit):
    """How many tokens fit this step? Without chunking a prompt must fit the rest of the budget whole."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._chunked: bool = config.enable_chunked_prefill
        self._skips: bool = config.skip_oversized_prefill

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        if candidate.loads_async:
            return None
        wanted = candidate.request.num_tokens - candidate.num_computed_tokens
        if 0 < budget.longest_prefill < wanted:
            wanted = budget.longest_prefill
        if not self._chunked and wanted > budget.tokens:
            ended = candidate.stopped(Reason.PREFILL_EXCEEDS_BUDGET, budget.tokens, queues, wanted)
            return ended.of_skipped() if self._skips else ended
        candidate.num_new_tokens = min(wanted, budget.tokens)
        return None


class PaddedPrefillLimit(PrefillLimit):
    """With drafts: a request that has one token to compute gets placeholder drafts, so that all decodes are alike.

    Only in a step that computes no prompt in the running pass, and only whole: else admission ends.
    """

    def __init__(self, config: SchedulerConfig, num_drafts: int) -> None:
        super().__init__(config)
        self._padded: int = 1 + num_drafts
        self._while_idle: bool = config.profile.idle_admission_pads
        self._leaves_room: bool = config.profile.padding_leaves_room
        self._last_start: int = config.max_model_len - self._padded - self._leaves_room
        """A request that has come further has no room for the padding, or also the token sampled after it."""

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        if candidate.loads_async or not self._pads(candidate, budget):
            return PrefillLimit.ask(self, candidate, budget, queues)  # C finds no super() here
        if self._padded > budget.tokens or candidate.num_computed_tokens > self._last_start:
            return candidate.stopped(Reason.TOKEN_BUDGET, budget.tokens, queues, self._padded)
        candidate.num_new_tokens, candidate.is_padded = self._padded, True
        return None

    def _pads(self, candidate: Candidate, budget: StepBudget) -> bool:
        computed = candidate.num_computed_tokens
        if candidate.request.num_tokens - computed != 1 or budget.has_run_prefill:
            return False
        is_due = budget.has_run or (self._while_idle and computed > 0)
        return is_due and (computed <= self._last_start or not self._leaves_room)


class EncoderLimit(Limit):
    """Can the encoder inputs of its tokens be computed in this step? If not, only the tokens before them."""

    def __init__(self, encoder: EncoderInputs, *, ends_pass: bool) -> None:
        self._encoder: EncoderInputs = encoder
        self._ends_pass: bool = ends_pass

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        request, wanted = candidate.request, candidate.num_new_tokens
        if not request.mm_features or candidate.loads_async:
            return None
        grant = self._encoder.plan(request, candidate.num_computed_tokens, wanted, budget.encoder)
        candidate.num_new_tokens, candidate.encoder_items = grant
        candidate.num_encoder_tokens = self._encoder.num_cross_tokens(request, grant.items)
        if grant.num_new_tokens:
            return None
        ended = candidate.stopped(Reason.ENCODER_BUDGET, budget.encoder, queues, wanted)
        return ended if self._ends_pass else ended.of_skipped()


class AlignmentLimit(Limit):
    """Does a step that keeps a Mamba state end where a block does? If not, only the whole blocks before."""

    def __init__(self, alignment: BlockAlignment) -> None:
        self._alignment: BlockAlignment = alignment

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        request, wanted = candidate.request, candidate.num_new_tokens
        candidate.num_new_tokens = self._alignment.admit_request(request, wanted, candidate.num_computed_tokens)
        candidate.drop_cut_padding(wanted)
        if candidate.num_new_tokens:
            return None
        return candidate.stopped(Reason.MAMBA_ALIGNMENT, budget.tokens, queues, wanted)


# ---------------------------------------------------------------------------------------------------------------------
# The last limit: memory.


class MemoryLimit(Limit):
    """Is there memory? The last question: a yes has allocated."""

    def __init__(self, context: SchedulerContext, pins: PinBoard) -> None:
        config, features = context.config, context.features
        self._reserve_full: bool = config.scheduler_reserve_full_isl
        self._counts_lookups: bool = config.profile.lookups_count_at_admission
        self._kv: KVCacheManager = context.kv
        self._running: RunningList = context.running
        self._encoder: EncoderInputs | None = features.encoder
        self._transfers: Transfers | None = features.transfers
        self._num_lookahead_tokens: int = features.num_lookahead_tokens
        self._reserves_lookahead: bool = config.profile.admission_reserves_lookahead
        self._pins: PinBoard = pins

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        demand = Demand(
            candidate.request,
            candidate.num_new_tokens,
            candidate.computed or self._kv.no_hits,
            num_external_computed_tokens=candidate.num_external_computed_tokens,
            num_lookahead_tokens=self._num_lookahead_tokens if self._looks_ahead(candidate) else 0,
            num_encoder_tokens=candidate.num_encoder_tokens,
            delay_cache_blocks=candidate.loads_async,
            full_sequence_must_fit=self._reserve_full,
            must_fit=candidate.must_fit,
            keep_watermark=len(self._running) > 0,
        )
        answer = self._kv.allocate_slots(demand)
        if answer is None:
            self._took_encoder_items(candidate, budget)
            if self._counts_lookups and candidate.computed is not None:
                self._kv.count_lookup(candidate.request, candidate.computed)
            return self._after_alloc(candidate, budget) if self._transfers is not None else None
        if self._encoder is not None:
            self._encoder.cache.free(candidate.request)
        shortage, smallest = self._shortage(answer), queues.smallest_need()
        if shortage is not None and smallest is not None:
            smallest = min(smallest, shortage.needed)  # the head waits as well, and its hits are known
        return Outcome(
            _STOPPED,
            KV_REASONS[answer.limit],
            candidate.request.request_id,
            len(queues),
            shortage,
            candidate.num_new_tokens,
            budget.tokens,
            smallest,
        )

    def _looks_ahead(self, candidate: Candidate) -> bool:
        """Whether its lookahead slots are taken now, or with the first tokens after these."""
        if self._reserves_lookahead:
            return not candidate.loads_async
        return candidate.request.num_computed_tokens > 0

    def _shortage(self, answer: KVShortage) -> KVShortage | None:
        """The blocks of a refusal; None if they were not the obstacle."""
        if answer.limit is _STATE_NOT_READY:
            return None
        return answer._replace(pinned=self._pins.num_blocks) if len(self._pins) else answer

    def _after_alloc(self, candidate: Candidate, budget: StepBudget) -> Outcome | None:
        """Tell the connector; a request that has to wait for its load is skipped with its blocks in hand."""
        assert self._transfers is not None
        request, external = candidate.request, candidate.num_external_computed_tokens
        self._transfers.allocated(request, self._kv.get_block_ids(request), external)
        if candidate.computed is not None:
            queried = request.num_tokens - candidate.num_local_hit_tokens
            self._transfers.stats.record(queried, external, preempted=request.num_preemptions > 0)
        if not candidate.loads_async:
            return None
        request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
        request.num_computed_tokens = candidate.num_computed_tokens
        self._transfers.local_hits[request.request_id] = candidate.num_local_hit_tokens
        return candidate.skipped(Reason.ASYNC_KV_LOAD_STARTED, budget)

    def _took_encoder_items(self, candidate: Candidate, budget: StepBudget) -> None:
        request, encoder = candidate.request, self._encoder
        if encoder is not None:
            encoder.commit(request, candidate.encoder_items, budget)
            encoder.note_position(request, candidate.num_computed_tokens)


# ---------------------------------------------------------------------------------------------------------------------
# Which limits a scheduler has, and in which order it asks them.


class CheckedLimit(Limit):
    """A limit of a plug-in, whose answer is checked."""

    def __init__(self, limit: AdmissionLimit) -> None:
        self._limit: AdmissionLimit = limit

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        before = candidate.num_new_tokens
        answer = asked(PolicyError, self._limit, "ask", self._limit.ask, candidate, budget, queues)
        candidate.num_new_tokens = int(candidate.num_new_tokens)  # it may have counted in another library's numbers
        refused = isinstance(answer, Refused) and answer.is_sound
        if not refused and answer is not None and not isinstance(answer, Outcome):
            problem = f'returned {shown(answer)}: return None, or Refused("a word of your own")'
            raise PolicyError(self._limit, "ask", problem)
        if not min(before, 1) <= candidate.num_new_tokens <= before:
            problem = f"left {candidate.num_new_tokens} of {before} tokens: lower num_new_tokens, to 1 at least"
            raise PolicyError(self._limit, "ask", problem)
        candidate.drop_cut_padding(before)
        return candidate.refused(answer, budget, queues) if isinstance(answer, Refused) else answer


class PrefillShareLimit:
    """How many of its tokens may be computed beside the other prompts of this step, if the policy bounds that?"""

    def __init__(self, config: SchedulerConfig) -> None:
        self._chunked: bool = config.enable_chunked_prefill

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | Refused | None:
        left = budget.prefill_left()
        if left is None or candidate.num_new_tokens <= left:
            return None
        if left and self._chunked:
            candidate.num_new_tokens = left
            return None
        assert budget.bounds is not None
        return Refused(budget.bounds.detail)


class PolicyLimit(Limit):
    """Does the policy want it admitted now?"""

    def __init__(self, context: SchedulerContext) -> None:
        self._policy: PolicyGate = context.policy
        self._kv: KVCacheManager = context.kv
        self._running: RunningList = context.running
        self._clock: Callable[[], float] = context.clock

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Outcome | None:
        view = AdmissionView(
            running=self._running.members(),
            num_waiting=len(queues),
            free_blocks=self._kv.num_free_blocks,
            total_blocks=self._kv.pool.num_blocks,
            budget_left=budget.tokens,
            new_tokens=candidate.num_new_tokens,
            cached_tokens=candidate.num_computed_tokens,
            now=self._clock(),
        )
        refused = self._policy.admits(candidate.request, view)
        return None if refused is None else candidate.refused(refused, budget, queues)


def limits_in_order(context: SchedulerContext, pins: PinBoard) -> list[Limit]:
    """The limits of the configured features, in the order in which vLLM asks."""
    config, features = context.config, context.features
    limits: list[Limit] = [ReadyLimit(features.transfers, context.grammars)]
    if features.late_outputs is not None:
        limits.append(LateOutputLimit(features.late_outputs))
    if config.max_loras:
        limits.append(LoraLimit(config.max_loras))
    limits.append(PrefixLookup(context.kv, counts=not config.profile.lookups_count_at_admission))
    if features.transfers is not None:
        limits.append(ConnectorLookup(features.transfers))
    if features.speculation is not None and config.profile.admission_pads_decodes:
        limits.append(PaddedPrefillLimit(config, features.speculation.max_drafts))
    else:
        limits.append(PrefillLimit(config))
    # Those of plug-ins stand before whatever plans for the tokens that are left.
    if context.policy.acts_each_step:
        limits.append(CheckedLimit(PrefillShareLimit(config)))
    limits += map(CheckedLimit, context.plugin_limits)
    chunk: list[Limit] = []
    if features.encoder is not None:
        chunk.append(EncoderLimit(features.encoder, ends_pass=config.profile.encoder_refusal_ends_pass))
    if features.alignment is not None:
        chunk.append(AlignmentLimit(features.alignment))
    limits += reversed(chunk) if config.profile.states_cut_before_images else chunk
    if context.policy.may_refuse:
        limits.append(PolicyLimit(context))
    limits.append(MemoryLimit(context, pins))
    return limits
