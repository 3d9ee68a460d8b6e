"""The recorded reasons: what each means, what was short, and what to change."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tokenyard.vocabulary.families import Family

__all__ = ["REASONS", "OutcomeKind", "Reason", "ReasonEntry", "holds", "is_event", "is_for_good"]


class OutcomeKind(StrEnum):
    """What the reason ended."""

    NOT_ENTERED = "not_entered"
    """The admission pass did not begin."""
    LOOP_ENDED = "loop_ended"
    """The admission pass ran until nothing was left to do or to spend."""
    STOPPED = "stopped"
    """The admission pass stopped at one request; those behind it were not looked at."""
    SKIPPED = "skipped"
    """One waiting request was passed over; the next was tried."""
    NOT_SCHEDULED = "not_scheduled"
    """A running request got no tokens in this step."""


class Reason(StrEnum):
    """The recorded reasons, by what they are about."""

    PREEMPTED_THIS_STEP = "preempted_this_step"
    PAUSED = "paused"
    QUEUES_EMPTY = "queues_empty"
    TOKEN_BUDGET = "token_budget"
    MAX_NUM_SEQS = "max_num_seqs"
    PREFILL_EXCEEDS_BUDGET = "prefill_exceeds_budget"
    PREFILL_CADENCE = "prefill_cadence"
    KV_FULL_SEQUENCE = "kv_full_sequence"
    KV_BLOCKS = "kv_blocks"
    KV_WATERMARK = "kv_watermark"
    ENCODER_BUDGET = "encoder_budget"
    MAMBA_ALIGNMENT = "mamba_alignment"
    MAMBA_STATE_NOT_READY = "mamba_state_not_ready"
    WAITING_GRAMMAR = "waiting_grammar"
    WAITING_REMOTE_KV = "waiting_remote_kv"
    WAITING_STREAM_INPUT = "waiting_stream_input"
    WAITING_ENCODER_CACHE = "waiting_encoder_cache"
    LORA_SLOTS = "lora_slots"
    CONNECTOR_UNDECIDED = "connector_undecided"
    ASYNC_KV_LOAD_STARTED = "async_kv_load_started"
    PLACEHOLDERS_COVER_LIMIT = "placeholders_cover_limit"
    NO_NEW_TOKENS = "no_new_tokens"
    RUNNING_INDEX_DRIFT = "running_index_drift"
    SELF_PREEMPTED = "self_preempted"
    HOOK_FAILED = "hook_failed"


class ReasonEntry(NamedTuple):
    """What is known of a reason."""

    meaning: str
    """One sentence."""
    family: Family
    remedy: str
    """What to change."""
    unit: str | None = None
    """What the numbers recorded with it count; None if it has none."""
    counted_in: Reason | None = None
    """The reason of the pass whose number of requests counts these requests as well."""
    holds: bool = True
    """The request could have used tokens. False: it needs none, so nobody counts it as held back."""


_MORE_BLOCKS = (
    "More KV blocks: a larger GPU, a higher gpu_memory_utilization, tensor parallelism, a smaller KV dtype; or fewer "
    "sequences."
)

REASONS = {
    Reason.PREEMPTED_THIS_STEP: ReasonEntry(
        "A running request had just lost its blocks for want of memory; the freed blocks are kept for those that run, "
        "and nobody is admitted in such a step.",
        Family.PREEMPTED,
        "More KV blocks, fewer sequences (max_num_seqs) or shorter outputs.",
        "blocks",
    ),
    Reason.PAUSED: ReasonEntry("The scheduler was paused.", Family.DEPENDENCY, "Nothing: resume it."),
    Reason.QUEUES_EMPTY: ReasonEntry(
        "Everybody who waited was looked at.",
        Family.HEALTHY,
        "Nothing in the scheduler: a request that did not run had not arrived.",
    ),
    Reason.TOKEN_BUDGET: ReasonEntry(
        "The step's tokens (max_num_batched_tokens) were spent before these requests had their turn.",
        Family.TOKENS,
        "A larger max_num_batched_tokens, or a long_prefill_token_threshold that keeps long prompts from taking all.",
        "tokens",
    ),
    Reason.MAX_NUM_SEQS: ReasonEntry(
        "As many requests were running as max_num_seqs allows.",
        Family.SEQUENCES,
        "A larger max_num_seqs, if memory allows.",
        "requests",
    ),
    Reason.PREFILL_EXCEEDS_BUDGET: ReasonEntry(
        "With chunked prefill off, the next prompt was longer than what was left of the step's tokens.",
        Family.TOKENS,
        "enable_chunked_prefill; or skip_oversized_prefill, to try the next request instead.",
        "tokens",
    ),
    Reason.PREFILL_CADENCE: ReasonEntry(
        "Prompts are computed in every n-th step only (prefill_schedule_interval); this one was left to those that "
        "decode.",
        Family.TOKENS,
        "A smaller prefill_schedule_interval, which starts prompts sooner and makes steps that only decode rarer.",
        "tokens",
    ),
    Reason.KV_FULL_SEQUENCE: ReasonEntry(
        "The whole prompt of the first request in the queue did not fit the free KV blocks, and a request is admitted "
        "only when all of it fits (scheduler_reserve_full_isl).",
        Family.MEMORY,
        "More KV blocks; or scheduler_reserve_full_isl off, which admits earlier and preempts more.",
        "blocks",
    ),
    Reason.KV_BLOCKS: ReasonEntry(
        "The first request in the queue needed more KV blocks for this step than were free.",
        Family.MEMORY,
        _MORE_BLOCKS,
        "blocks",
    ),
    Reason.KV_WATERMARK: ReasonEntry(
        "Admitting would have left fewer free KV blocks than the watermark keeps.",
        Family.MEMORY,
        "A smaller watermark.",
        "blocks",
    ),
    Reason.ENCODER_BUDGET: ReasonEntry(
        "The step's budget for image, audio or video inputs was used up.",
        Family.DEPENDENCY,
        "A larger max_num_encoder_input_tokens.",
        "tokens",
    ),
    Reason.MAMBA_ALIGNMENT: ReasonEntry(
        "What was left of the step's tokens did not fill a block of a state-space layer.",
        Family.TOKENS,
        "A larger max_num_batched_tokens.",
        "tokens",
    ),
    Reason.MAMBA_STATE_NOT_READY: ReasonEntry(
        "The state that its cached prefix ends with was being computed in this very step.",
        Family.DEPENDENCY,
        "Nothing: it is there in the next step.",
    ),
    Reason.WAITING_GRAMMAR: ReasonEntry(
        "The grammar of a structured output was still being compiled.",
        Family.DEPENDENCY,
        "Compile ahead, reuse schemas, or choose another structured-output backend.",
    ),
    Reason.WAITING_REMOTE_KV: ReasonEntry(
        "Its KV blocks were still on their way from elsewhere.",
        Family.DEPENDENCY,
        "More bandwidth of the KV connector, or load less.",
    ),
    Reason.WAITING_STREAM_INPUT: ReasonEntry(
        "Its next piece of input had not come.", Family.DEPENDENCY, "Nothing in the scheduler: send the input sooner."
    ),
    Reason.WAITING_ENCODER_CACHE: ReasonEntry(
        "The encoder's output for one of its images or clips was still on its way from elsewhere.",
        Family.DEPENDENCY,
        "More bandwidth of the encoder-cache connector, or faster encoders.",
    ),
    Reason.LORA_SLOTS: ReasonEntry(
        "All slots for LoRA adapters were taken by others in this step.",
        Family.DEPENDENCY,
        "A larger max_loras.",
        "adapters",
    ),
    Reason.CONNECTOR_UNDECIDED: ReasonEntry(
        "The KV connector could not say yet what it has.", Family.DEPENDENCY, "A connector that looks up faster."
    ),
    Reason.ASYNC_KV_LOAD_STARTED: ReasonEntry(
        "The load of its KV blocks was started in this step.",
        Family.DEPENDENCY,
        "Nothing: it runs when they are there.",
    ),
    Reason.PLACEHOLDERS_COVER_LIMIT: ReasonEntry(
        "Tokens in flight already reach its length limit.",
        Family.TOKENS,
        "Nothing: it ends with the steps in flight.",
        holds=False,
    ),
    Reason.NO_NEW_TOKENS: ReasonEntry(
        "All its known tokens are computed or in flight.",
        Family.TOKENS,
        "Nothing: it goes on when a step in flight returns.",
    ),
    Reason.RUNNING_INDEX_DRIFT: ReasonEntry(
        "It stood behind a request that an idle victim made room for, and was passed over.",
        Family.ORDER,
        "running_index_drifts off.",
    ),
    Reason.SELF_PREEMPTED: ReasonEntry(
        "It needed a block, none was free, and it was itself next to give way.",
        Family.PREEMPTED,
        _MORE_BLOCKS,
        "blocks",
        counted_in=Reason.PREEMPTED_THIS_STEP,
    ),
    Reason.HOOK_FAILED: ReasonEntry(
        "A policy, a connector or a grammar raised an error instead of answering.",
        Family.DEPENDENCY,
        "Mend what raised: schedule() ended with its error.",
    ),
}
"""Every recorded reason."""


_CLEARED_BY_EVENTS = frozenset(
    (
        Reason.PAUSED,
        Reason.WAITING_GRAMMAR,
        Reason.WAITING_REMOTE_KV,
        Reason.ASYNC_KV_LOAD_STARTED,
        Reason.CONNECTOR_UNDECIDED,
        Reason.WAITING_STREAM_INPUT,
        Reason.WAITING_ENCODER_CACHE,
        Reason.PREEMPTED_THIS_STEP,
        Reason.PREFILL_CADENCE,
        Reason.HOOK_FAILED,
    )
)
"""What a request may wait for as long as it takes, in an engine in which nothing runs: something outside of the
scheduler, a further step, or whoever mends a hook that raises.
"""

_CLEARED_BY_OTHERS = frozenset(
    (
        Reason.MAX_NUM_SEQS,
        Reason.KV_FULL_SEQUENCE,
        Reason.KV_BLOCKS,
        Reason.KV_WATERMARK,
        Reason.SELF_PREEMPTED,
        Reason.ENCODER_BUDGET,
        Reason.LORA_SLOTS,
    )
)
"""What passes when somebody else lets go of blocks, outputs or places; where nobody holds any, it never does."""


def is_event(reason: str) -> bool:
    """Whether something outside of the scheduler clears the reason, however long that takes."""
    return reason in _CLEARED_BY_EVENTS


def is_for_good(reason: str, *, others_wait: bool) -> bool:
    """Whether nothing will ever clear the reason, in an engine that has scheduled no token and has nothing in flight.

    ``others_wait``: somebody who may hold what is short waits for an event, and will let go.
    """
    if reason in _CLEARED_BY_EVENTS or reason == Reason.QUEUES_EMPTY:
        return False
    return not (others_wait and reason in _CLEARED_BY_OTHERS)


def holds(reason: str) -> bool:
    """Whether requests of this reason are held back; a reason that is not known holds."""
    return reason not in REASONS or REASONS[Reason(reason)].holds
