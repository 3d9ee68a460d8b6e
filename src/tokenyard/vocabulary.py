"""The words with which a decision is explained, once: reasons, waits, families; names of policies."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tokenyard.errors import near_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


# ---------------------------------------------------------------------------------------------------------------------
# Families of reasons: what was short, in a word. The viewer has one colour for each.


class Family(StrEnum):
    """What kind of thing held a request back."""

    TOKENS = "tokens"
    MEMORY = "memory"
    SEQUENCES = "sequences"
    ORDER = "order"
    PREEMPTED = "preempted"
    DEPENDENCY = "dependency"
    HEALTHY = "healthy"
    IDLE = "idle"
    UNKNOWN = "unknown"


FAMILIES = {
    Family.TOKENS: "token budget",
    Family.MEMORY: "KV blocks",
    Family.SEQUENCES: "max_num_seqs",
    Family.ORDER: "refused though blocks are free",
    Family.PREEMPTED: "after a preemption",
    Family.DEPENDENCY: "waits for something outside",
    Family.HEALTHY: "healthy",
    Family.IDLE: "idle",
    Family.UNKNOWN: "not known",
}
"""What was short, in a few words for a legend."""


# ---------------------------------------------------------------------------------------------------------------------
# Names of policies: those that are shipped, and those that installed packages register; without loading any.

ENTRY_POINT_GROUP = "tokenyard.policies"
BUILT_IN = ("fcfs", "priority")
"""vLLM's."""

SHIPPED = {
    "attained-service": "tokenyard.policies.fair:AttainedService",
    "bypass": "tokenyard.policies.simple:Bypass",
    "continuum": "tokenyard.policies.continuum.policy:continuum_by_program",
    "continuum-fixed": "tokenyard.policies.continuum.policy:continuum_fixed",
    "continuum-share": "tokenyard.policies.continuum.policy:continuum_share",
    "continuum-ttl": "tokenyard.policies.continuum.policy:continuum_ttl",
    "fair-share": "tokenyard.policies.fair:FairShare",
    "fastserve": "tokenyard.policies.baselines:FastServe",
    "least-computed": "tokenyard.policies.simple:LeastComputed",
    "noisy-sjf": "tokenyard.policies.baselines:NoisySJF",
    "orca": "tokenyard.policies.baselines:Orca",
    "program-admission": "tokenyard.policies.programs:ProgramAdmission",
    "program-fcfs": "tokenyard.policies.programs:ProgramFCFS",
    "sarathi": "tokenyard.policies.baselines:Sarathi",
    "shortest-remaining": "tokenyard.policies.simple:ShortestRemaining",
    "vllm-v0": "tokenyard.policies.baselines:PrefillFirst",
    "vtc": "tokenyard.policies.baselines:VTC",
}
"""Ours that are loaded when named: written as entry points are, which other packages register theirs by."""

PIN_ENDS = {
    "used": "the next turn of its job was admitted",
    "expired": "its time to live was over before the next turn came",
    "dropped": "its memory was needed before the next turn came",
    "replaced": "another turn of its job ended and was kept instead",
    "last_turn": "the last turn of its job ended",
    "reset": "the host had the cache forgotten",
}
"""Why blocks that a policy kept for the next turn of a job are free again."""

_CALLED_ELSEWHERE = {
    "fifo": "fcfs",
    "las": "attained-service",
    "mlfq": "attained-service",
    "sjf": "shortest-remaining",
    "srpt": "shortest-remaining",
    "srtf": "shortest-remaining",
}
"""What papers call them."""


def registered_policies() -> Sequence[EntryPoint]:
    """What installed packages register."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it loads zip files and e-mail, and is rarely needed

    return list(entry_points(group=ENTRY_POINT_GROUP))


def known_policies() -> list[str]:
    """Names that ``make_policy`` accepts."""
    return sorted({*BUILT_IN, *SHIPPED, *(point.name for point in registered_policies())})


def file_and_class(spec: str) -> tuple[str, str]:
    """File and class of ``FILE.py:CLASS``, both empty for a name."""
    file, _, class_name = spec.rpartition(":")
    if file.endswith(".py"):
        return file, class_name
    return (spec, "") if spec.endswith(".py") else ("", "")


def is_known_policy(spec: str) -> bool:
    """Whether ``spec`` is a registered name, or names a file (which is not looked at)."""
    return spec in BUILT_IN or spec in SHIPPED or bool(file_and_class(spec)[0]) or spec in known_policies()


def policy_hint(name: str) -> str:
    """What to use in the place of an unknown name: the nearest one, if one is near, and all."""
    known = known_policies()
    near = near_names(name.lower(), [*known, *_CALLED_ELSEWHERE], 1, 0.6)
    meant = f"did you mean {_CALLED_ELSEWHERE.get(near[0], near[0])}? " if near else ""
    return f"{meant}use one of: {', '.join(known)}; or FILE.py:CLASS for one of your own"


# ---------------------------------------------------------------------------------------------------------------------
# The recorded reasons: what each means, what was short, and what to change.


class OutcomeKind(StrEnum):
    """What the reason ended."""

    NOT_ENTERED = "not_entered"
    """The admission pass did not begin."""
    LOOP_ENDED = "loop_ended"
    """The admission pass ran until nothing was left to do or to spend."""
    STOPPED = "stopped"
    """The admission pass stopped at one request; those behind it were not looked at."""
    SKIPPED = "skipped"
    """One waiting request was skipped; the next was tried."""
    NOT_SCHEDULED = "not_scheduled"
    """A running request got no tokens in this step."""


class Clears(StrEnum):
    """What makes a reason go away, in an engine in which nothing runs."""

    EVENT = "event"
    """Something outside of the scheduler, a further step, or a mended hook; it may take long."""
    OTHERS = "others"
    """Another request that lets go of blocks, outputs or places; where none holds any, nothing ever does."""
    ARRIVAL = "arrival"
    """A further request."""
    NOTHING = "nothing"


class ReasonEntry(msgspec.Struct, frozen=True):
    """What is known of a reason."""

    word: str
    """The one that traces have."""
    meaning: str
    """One sentence."""
    family: Family
    remedy: str
    """What to change."""
    unit: str | None = None
    """What the numbers recorded with it count; None if it has none."""
    ends: OutcomeKind = OutcomeKind.STOPPED
    """What the reason ends in most cases."""
    clears: Clears = Clears.NOTHING
    counted_in: str | None = None
    """The reason of the pass whose number of requests counts these requests as well."""
    holds: bool = True
    """The request could have used tokens. False: it needs none, so it does not count as held back."""
    in_flight: bool = False
    """The request waits for a step of its own that is computed: it is served, so a verdict does not count it as held
    back."""
    note: str = ""
    """More about it, for docs/reasons.md."""


_MORE_BLOCKS = (
    "More KV blocks: a larger GPU, a higher gpu_memory_utilization, tensor parallelism, a smaller KV dtype; or fewer "
    "sequences."
)


class Reason(StrEnum):
    """The recorded reasons, by what they are about, and everything that is known of each."""

    # This is all there is to enter: scripts/generate_vocabulary.py makes the viewer's copy of it, and the tables of
    # docs/reasons.md.

    _entry: ReasonEntry

    def __new__(cls, known: Any) -> Self:
        """Make a member whose value is the word of its entry (`Any`: a lookup by word is typed as this call)."""
        reason = str.__new__(cls, known.word)
        reason._value_, reason._entry = known.word, known  # noqa: SLF001 - its own
        return reason

    PREEMPTED_THIS_STEP = ReasonEntry(
        "preempted_this_step",
        "A running request had just lost its blocks for want of memory; the freed blocks are kept for those "
        "that run, and no request is admitted in such a step.",
        Family.PREEMPTED,
        "More KV blocks, fewer sequences (max_num_seqs) or shorter outputs.",
        "blocks",
        ends=OutcomeKind.NOT_ENTERED,
        clears=Clears.EVENT,
        note=(
            "Look at preemptions in the report. A running request has this reason too, if one before it needed "
            "a block and preempted itself: the running pass ended there."
        ),
    )
    PAUSED = ReasonEntry(
        "paused",
        "The scheduler was paused.",
        Family.DEPENDENCY,
        "Nothing: resume it.",
        ends=OutcomeKind.NOT_ENTERED,
        clears=Clears.EVENT,
    )
    QUEUES_EMPTY = ReasonEntry(
        "queues_empty",
        "All requests that waited were looked at.",
        Family.HEALTHY,
        "Nothing in the scheduler: a request that did not run had not arrived.",
        ends=OutcomeKind.LOOP_ENDED,
        clears=Clears.ARRIVAL,
        note=(
            "If a request of yours still did not run in this step, **it had not arrived**: look at what "
            "delivers the requests."
        ),
    )
    TOKEN_BUDGET = ReasonEntry(
        "token_budget",
        "The step's tokens (max_num_batched_tokens) were spent before these requests had their turn.",
        Family.TOKENS,
        "A larger max_num_batched_tokens, or a long_prefill_token_threshold that keeps long prompts from taking all.",
        "tokens",
        ends=OutcomeKind.LOOP_ENDED,
        note=(
            "A larger budget admits more per step, but makes each step longer; if steps already take as long "
            "as their tokens need, this gains nothing."
        ),
    )
    MAX_NUM_SEQS = ReasonEntry(
        "max_num_seqs",
        "As many requests were running as max_num_seqs allows.",
        Family.SEQUENCES,
        "A larger max_num_seqs, if memory allows.",
        "requests",
        ends=OutcomeKind.STOPPED,
        clears=Clears.OTHERS,
        note="Check first how much of the pool is in use.",
    )
    PREFILL_EXCEEDS_BUDGET = ReasonEntry(
        "prefill_exceeds_budget",
        "With chunked prefill off, the next prompt was longer than what was left of the step's tokens.",
        Family.TOKENS,
        "enable_chunked_prefill; or skip_oversized_prefill, to try the next request instead.",
        "tokens",
        ends=OutcomeKind.STOPPED,
    )
    PREFILL_CADENCE = ReasonEntry(
        "prefill_cadence",
        "Prompts are computed in every n-th step only (prefill_schedule_interval); this one was left to those "
        "that decode.",
        Family.TOKENS,
        "A smaller prefill_schedule_interval, which starts prompts sooner and makes steps that only decode rarer.",
        "tokens",
        ends=OutcomeKind.STOPPED,
        clears=Clears.EVENT,
        note="Only inside vLLM; our scheduler does not do this.",
    )
    KV_FULL_SEQUENCE = ReasonEntry(
        "kv_full_sequence",
        "The whole prompt of the first request in the queue did not fit the free KV blocks, and a request is "
        "admitted only when all of it fits (scheduler_reserve_full_isl).",
        Family.MEMORY,
        "More KV blocks; or scheduler_reserve_full_isl off, which admits earlier and preempts more.",
        "blocks",
        ends=OutcomeKind.STOPPED,
        clears=Clears.OTHERS,
        note="Its next chunk alone might fit.",
    )
    KV_BLOCKS = ReasonEntry(
        "kv_blocks",
        "The first request in the queue needed more KV blocks for this step than were free.",
        Family.MEMORY,
        _MORE_BLOCKS,
        "blocks",
        ends=OutcomeKind.STOPPED,
        clears=Clears.OTHERS,
    )
    KV_WATERMARK = ReasonEntry(
        "kv_watermark",
        "Admitting would have left fewer free KV blocks than the watermark keeps.",
        Family.MEMORY,
        "A smaller watermark.",
        "blocks",
        ends=OutcomeKind.STOPPED,
        clears=Clears.OTHERS,
    )
    ENCODER_BUDGET = ReasonEntry(
        "encoder_budget",
        "The step's budget for image, audio or video inputs was used up.",
        Family.DEPENDENCY,
        "A larger max_num_batched_tokens (what the budget follows from), smaller pictures, or fewer items in a prompt.",
        "tokens",
        ends=OutcomeKind.STOPPED,
        clears=Clears.OTHERS,
        note="Later versions try the next request.",
    )
    MAMBA_ALIGNMENT = ReasonEntry(
        "mamba_alignment",
        "What was left of the step's tokens did not fill a block of a state-space layer.",
        Family.TOKENS,
        "A larger max_num_batched_tokens.",
        "tokens",
        ends=OutcomeKind.STOPPED,
        note=("The step keeps the state of a recurrent (Mamba) layer, so the chunk has to end where a block ends."),
    )
    MAMBA_STATE_NOT_READY = ReasonEntry(
        "mamba_state_not_ready",
        "The state that its cached prefix ends with was being computed in this very step.",
        Family.DEPENDENCY,
        "Nothing: it is there in the next step.",
        ends=OutcomeKind.STOPPED,
    )
    WAITING_GRAMMAR = ReasonEntry(
        "waiting_grammar",
        "The grammar of a structured output was still being compiled.",
        Family.DEPENDENCY,
        "Compile ahead, reuse schemas, or choose another structured-output backend.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
    )
    WAITING_REMOTE_KV = ReasonEntry(
        "waiting_remote_kv",
        "Its KV blocks were still on their way from elsewhere.",
        Family.DEPENDENCY,
        "More bandwidth of the KV connector, or load less.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
    )
    WAITING_STREAM_INPUT = ReasonEntry(
        "waiting_stream_input",
        "Its next piece of input had not come.",
        Family.DEPENDENCY,
        "Nothing in the scheduler: send the input sooner.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
    )
    WAITING_ENCODER_CACHE = ReasonEntry(
        "waiting_encoder_cache",
        "The encoder's output for one of its images or clips was still on its way from elsewhere.",
        Family.DEPENDENCY,
        "More bandwidth of the encoder-cache connector, or faster encoders.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
        note="Only inside vLLM (`--ec-transfer-config`); our scheduler has no such connector.",
    )
    LORA_SLOTS = ReasonEntry(
        "lora_slots",
        "All slots for LoRA adapters were taken by others in this step.",
        Family.DEPENDENCY,
        "A larger max_loras.",
        "adapters",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.OTHERS,
        note="The adapter of this request is not among the `max_loras` of the step.",
    )
    POLICY_REFUSED = ReasonEntry(
        "policy_refused",
        "The scheduling policy held it back; its own word for that stands beside the reason (`detail`).",
        Family.ORDER,
        "What the policy asks for: its `detail` says what it waits for.",
        ends=OutcomeKind.STOPPED,
        note="Only plug-ins say it: `Policy.admits`, limits of your own, and `StepBounds`; vLLM's policies never do.",
    )
    CONNECTOR_UNDECIDED = ReasonEntry(
        "connector_undecided",
        "The KV connector could not say yet what it has.",
        Family.DEPENDENCY,
        "A connector that looks up faster.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
    )
    ASYNC_KV_LOAD_STARTED = ReasonEntry(
        "async_kv_load_started",
        "The load of its KV blocks was started in this step.",
        Family.DEPENDENCY,
        "Nothing: it runs when they are there.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
    )
    PLACEHOLDERS_COVER_LIMIT = ReasonEntry(
        "placeholders_cover_limit",
        "Tokens in flight already reach its length limit.",
        Family.TOKENS,
        "Nothing: it ends with the steps in flight.",
        ends=OutcomeKind.NOT_SCHEDULED,
        holds=False,
    )
    NO_NEW_TOKENS = ReasonEntry(
        "no_new_tokens",
        "All its known tokens are computed or in flight.",
        Family.TOKENS,
        "Nothing: it goes on when a step in flight returns.",
        ends=OutcomeKind.NOT_SCHEDULED,
        in_flight=True,
        note=(
            "It is served: a stage of the pipeline, or the step in flight, has it. The verdict, `waited_for` of a "
            "class and `held_by` of a sweep do not count it as held back. A waiting request has this reason too: it "
            "was preempted, and its output has not arrived yet."
        ),
    )
    RUNNING_INDEX_DRIFT = ReasonEntry(
        "running_index_drift",
        "It stood behind a request that an idle victim made room for, and was skipped.",
        Family.ORDER,
        "running_index_drifts off.",
        ends=OutcomeKind.NOT_SCHEDULED,
        note=(
            "vLLM's index into the running list slips when the victim stands before the request it makes room "
            "for and had no tokens in this step."
        ),
    )
    SELF_PREEMPTED = ReasonEntry(
        "self_preempted",
        "It needed a block, none was free, and it was itself next to give way.",
        Family.PREEMPTED,
        _MORE_BLOCKS,
        "blocks",
        ends=OutcomeKind.NOT_SCHEDULED,
        clears=Clears.OTHERS,
        counted_in="preempted_this_step",
    )
    HOOK_FAILED = ReasonEntry(
        "hook_failed",
        "Its grammar raised an error instead of answering.",
        Family.DEPENDENCY,
        "Mend the grammar: the request ends with its error.",
        ends=OutcomeKind.SKIPPED,
        clears=Clears.EVENT,
        note=("In traces of earlier versions also a policy or a connector ([hooks](hooks.md))."),
    )


REASONS = {reason: reason._entry for reason in Reason}  # noqa: SLF001 - offered here
"""Every recorded reason."""


def is_event(reason: str) -> bool:
    """Whether something outside of the scheduler clears the reason, however long that takes."""
    return reason in REASONS and REASONS[Reason(reason)].clears is Clears.EVENT


def is_for_good(reason: str, *, others_wait: bool) -> bool:
    """Whether nothing will ever clear the reason, in an engine that has scheduled no token and has nothing in flight.

    ``others_wait``: a request that may hold what is short waits for an event, and will let go.
    """
    clears = REASONS[Reason(reason)].clears if reason in REASONS else Clears.NOTHING
    return clears is Clears.NOTHING or (clears is Clears.OTHERS and not others_wait)


_HOLD_NONE = frozenset(reason for reason, entry in REASONS.items() if not entry.holds)


def holds(reason: str) -> bool:
    """Whether requests of this reason are held back; a reason that is not known holds."""
    return reason not in _HOLD_NONE


_IN_FLIGHT = frozenset(reason for reason, entry in REASONS.items() if entry.in_flight)


def is_in_flight(reason: str) -> bool:
    """Whether requests of this reason wait for a step of their own that is computed."""
    return reason in _IN_FLIGHT


# ---------------------------------------------------------------------------------------------------------------------
# What a request goes through, where its waiting time goes, and how a reason met it.


class Phase(StrEnum):
    """What a request does at a moment."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"


PHASES = {
    Phase.QUEUED: "It waits to be scheduled for the first time.",
    Phase.PREFILL: "It runs and computes its prompt.",
    Phase.DECODE: "It runs and brings output tokens.",
    Phase.PREEMPTED: "It had run, lost its blocks and waits again.",
}
"""What each phase means."""


class WaitState(StrEnum):
    """What a request was while it got no tokens."""

    QUEUED = "queued"
    PREEMPTED = "preempted"
    STALLED = "stalled"


WAIT_STATES = {
    WaitState.QUEUED: "before it was first scheduled",
    WaitState.PREEMPTED: "after losing its blocks",
    WaitState.STALLED: "running without tokens",
}
"""When it waited, in words that go on after "it waited"."""


class Place(StrEnum):
    """How a reason met a request."""

    OWN = "own"
    BEHIND = "behind"
    ALL = "all"
    GUESS = "guess"
    OUTSIDE = "outside"


class PlaceEntry(msgspec.Struct, frozen=True):
    """How to say it."""

    word: str
    """For a column of a table."""
    meaning: str


PLACES = {
    Place.OWN: PlaceEntry("itself", "It was refused, skipped or preempted itself."),
    Place.BEHIND: PlaceEntry("behind the head", "It stood behind the one that was refused."),
    Place.ALL: PlaceEntry("everybody", "It held back all waiting requests alike."),
    Place.GUESS: PlaceEntry("a guess", "Guessed from counts: no reason is recorded."),
    Place.OUTSIDE: PlaceEntry("", ""),
}
"""How a reason met a request, in words; ``outside`` has none: no decision held it back, or the trace does not record
it.
"""


class Gap(StrEnum):
    """Waiting time that no decision explains."""

    FRONT_END = "front_end"
    STEP_IN_PROGRESS = "step_in_progress"
    BETWEEN_STEPS = "between_steps"
    NOT_RECORDED = "not_recorded"
    NOT_LISTED = "not_listed"


class GapEntry(msgspec.Struct, frozen=True):
    """What is known of such time."""

    meaning: str
    family: Family


GAPS = {
    Gap.FRONT_END: GapEntry(
        "It was on its way to this scheduler: the server's front end had it or, of a prefill-decode pair, the prefill"
        " engine.",
        Family.IDLE,
    ),
    Gap.STEP_IN_PROGRESS: GapEntry(
        "A step was running when it arrived; the scheduler decides when the next one begins.", Family.IDLE
    ),
    Gap.BETWEEN_STEPS: GapEntry("No step was running; the host had not begun the next one.", Family.IDLE),
    Gap.NOT_RECORDED: GapEntry(
        "The trace does not record it: steps are left out of it, or their outcomes.", Family.UNKNOWN
    ),
    Gap.NOT_LISTED: GapEntry("One of several reasons; the trace's bound on ids leaves out which.", Family.UNKNOWN),
}
"""What each of them means."""


# ---------------------------------------------------------------------------------------------------------------------
# One sentence about a recorded reason.

UNKNOWN_REASON = "A reason that this version does not know."


def reason_meaning(reason: str) -> str:
    """What a recorded reason means; for one of a later version, that it is unknown."""
    return REASONS[Reason(reason)].meaning if reason in REASONS else UNKNOWN_REASON
