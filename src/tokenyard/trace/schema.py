"""The records of a trace, field by field: this module *is* the format, ``docs/trace-format.md`` explains it.

Every line of a trace is one JSON object. In the steps file ``event`` tells the kind; the records of the requests file
have none. Every field but ``step`` may be missing, in which case it is None here, and None is never written: traces of
other emitters leave fields out or write null. Times are seconds, token counts tokens, KV counts blocks.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec

FORMAT_VERSION = 1
"""Raised when a field changes its meaning; a new field or event does not raise it."""
MOVED = "moved"
"""Finish reason of a request that went on at another engine."""
REFUSED = "refused"
"""Finish reason of a request that the engine turned away."""


Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A whole number that every JSON reader holds exactly; a larger one in a trace is treated as missing."""


Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=8e9)]
"""A moment or a duration. Beyond the year 2223 it is no time: it is treated as missing, as a wrong type is."""


class StepSnapshot(msgspec.Struct, tag_field="event", tag="step_snapshot", omit_defaults=True, kw_only=True, gc=False):
    """The queues and the pool at the top of ``schedule()``, before any decision."""

    step: Whole
    ts: Seconds | None = None
    policy: str | None = None
    free_blocks: Whole | None = None
    """Blocks in the free queue, cached evictable ones included."""
    total_blocks: Whole | None = None
    num_running: Whole | None = None
    num_waiting: Whole | None = None
    """Length of both waiting queues together."""
    num_pinned: Whole | None = None
    running_req_ids: list[str] | None = None
    """Ids of running requests, in running order."""
    waiting_req_ids: list[str] | None = None
    """The skipped queue, then the waiting queue, each in its order."""
    running_job_ids: list[str | None] | None = None
    """Parallel to ``running_req_ids``; null for a request of no job."""
    waiting_job_ids: list[str | None] | None = None
    cpu_free_blocks: Whole | None = None
    cpu_total_blocks: Whole | None = None
    pinned_blocks: Whole | None = None
    pinned_job_ids: list[str] | None = None
    max_num_scheduled_tokens: Whole | None = None
    """Token budget of the step."""
    max_num_running_reqs: Whole | None = None
    # ---- additive
    gpu_cached_blocks: Whole | None = None
    """Distinct hashes in the prefix index."""
    num_skipped_waiting: Whole | None = None
    """Requests of ``num_waiting`` that are in the skipped queue."""
    running_req_ids_omitted: Whole | None = None
    """Ids left out of ``running_req_ids`` (and its jobs) by the bound on ids."""
    waiting_req_ids_omitted: Whole | None = None


class StepDecision(msgspec.Struct, tag_field="event", tag="step_decision", omit_defaults=True, kw_only=True, gc=False):
    """What ``schedule()`` decided."""

    step: Whole
    ts: Seconds | None = None
    policy: str | None = None
    scheduled_new_req_ids: list[str] | None = None
    scheduled_resumed_req_ids: list[str] | None = None
    scheduled_running_req_ids: list[str] | None = None
    preempted_req_ids: list[str] | None = None
    num_scheduled_tokens: dict[str, Whole] | None = None
    """Request id -> tokens, for exactly the ids of the three ``scheduled_*`` lists."""
    # ---- additive
    total_scheduled_tokens: Whole | None = None
    recomputed_tokens: Whole | None = None
    """Tokens of the resumed requests that were computed before their preemption and are not cached any more."""
    running_consumed_blocks: Whole | None = None
    """``runningConsumed`` of the classifier; written when ids were left out, since it cannot be derived then."""
    scheduled_running_req_ids_omitted: Whole | None = None
    scheduled_new_req_ids_omitted: Whole | None = None
    scheduled_resumed_req_ids_omitted: Whole | None = None


class PrefixCacheLookup(
    msgspec.Struct, tag_field="event", tag="prefix_cache_lookup", omit_defaults=True, kw_only=True, gc=False
):
    """A request's prefix-cache hits, once, on the step that schedules it first."""

    step: Whole
    ts: Seconds | None = None
    policy: str | None = None
    req_id: str | None = None
    job_id: str | None = None
    local_hit_tokens: Whole | None = None
    external_hit_tokens: Whole | None = None
    total_hit_tokens: Whole | None = None
    total_prompt_tokens: Whole | None = None
    num_tokens: Whole | None = None
    connector: str | None = None
    load_kv_async: bool | None = None
    # ---- additive
    prompt_hash_runs: list[Whole] | None = None
    """Its full blocks, as ids that are equal where the block and all tokens before it are equal: the first id of a run
    of consecutive ids, how many there are, the first of the next run, and so on."""


class TraceStart(msgspec.Struct, tag_field="event", tag="trace_start", omit_defaults=True, kw_only=True):
    """First record of a trace: what ran, under which configuration, and how much of it was written."""

    format_version: Whole | None = None
    ts: Seconds | None = None
    policy: str | None = None
    tokenyard_version: str | None = None
    host: str | None = None
    """Kind of host: ``replay``, ``engine`` or ``vllm``."""
    model: str | None = None
    gpu: str | None = None
    block_size: Whole | None = None
    bytes_per_block: Whole | None = None
    config: dict[str, Any] | None = None
    """The whole configuration: section -> setting -> value."""
    every_n: Whole | None = None
    max_steps: Whole | None = None
    max_ids_per_step: Whole | None = None
    request_records: bool | None = None
    clock_zero: Seconds | None = None
    """Unix time at which the clock of the trace showed 0, where it is not Unix time itself."""
    clock_speed: float | None = None
    """Seconds of the trace's clock in a second of the wall; 1 if it is not given."""
    warmup: Seconds | None = None
    """Requests that arrive, and steps that begin, before this moment do not count in figures of the run."""


class TraceEnd(msgspec.Struct, tag_field="event", tag="trace_end", omit_defaults=True, kw_only=True, gc=False):
    """The run was ended at ``ts``, with whatever was unfinished; not written where it came to its own end."""

    ts: Seconds | None = None
    policy: str | None = None


class KVNumbers(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Numbers of a refused allocation, in blocks (see ``core/kv/allocation.py``)."""

    limit: str | None = None
    needed: Whole | None = None
    free: Whole | None = None
    cached_hits: Whole | None = None
    reserved: Whole | None = None
    watermark: Whole | None = None
    pinned: Whole | None = None


class Refusal(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One request that was skipped or got no tokens."""

    reason: str
    req_id: str | None = None
    wanted_tokens: Whole | None = None
    budget_left: Whole | None = None
    kv: KVNumbers | None = None
    detail: str | None = None
    """The policy's own word, for ``policy_refused``."""


class PreemptionNumbers(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One request that lost its blocks so that another could grow."""

    req_id: str
    for_req_id: str | None = None
    num_computed_tokens: Whole | None = None
    rolled_back_tokens: Whole | None = None
    kv: KVNumbers | None = None


class AdmissionOutcome(
    msgspec.Struct, tag_field="event", tag="admission_outcome", omit_defaults=True, kw_only=True, gc=False
):
    """Why requests were held back in a step; written only for steps that held back, skipped or preempted one."""

    step: Whole
    ts: Seconds | None = None
    policy: str | None = None
    kind: str | None = None
    """How the admission pass ended: a value of ``OutcomeKind``."""
    reason: str | None = None
    """A value of ``Reason``."""
    req_id: str | None = None
    """The request at which it ended: the head of the queue."""
    num_requests: Whole | None = None
    """Requests held back by it."""
    kv: KVNumbers | None = None
    smallest_need: Whole | None = None
    """Blocks that the smallest waiting request needs, hits counted for the head only: never above ``kv.needed``."""
    detail: str | None = None
    """The policy's own word, for ``policy_refused``."""
    wanted_tokens: Whole | None = None
    budget_left: Whole | None = None
    skipped_counts: dict[str, Whole] | None = None
    """Reason -> waiting requests skipped."""
    skipped: list[Refusal] | None = None
    skipped_omitted: Whole | None = None
    not_scheduled_counts: dict[str, Whole] | None = None
    """Reason -> running requests that got no tokens."""
    not_scheduled: list[Refusal] | None = None
    not_scheduled_omitted: Whole | None = None
    preemptions: list[PreemptionNumbers] | None = None


class MultiModalSpan(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Where a multi-modal item stands in a prompt."""

    mm_hash: str
    """Content hash of the item."""
    offset: Whole
    """Position of its first placeholder token."""
    length: Whole
    """Placeholder tokens."""


class RequestArrived(
    msgspec.Struct, tag_field="event", tag="request_arrived", omit_defaults=True, kw_only=True, gc=False
):
    """A request came; ``step`` is the next step to run. One that the engine refuses is finished at once."""

    step: Whole | None = None
    ts: Seconds | None = None
    policy: str | None = None
    req_id: str | None = None
    job_id: str | None = None
    arrival_time: Seconds | None = None
    priority: Whole | None = None
    num_prompt_tokens: Whole | None = None
    max_tokens: Whole | None = None
    # ---- additive
    min_tokens: Whole | None = None
    """No stop condition counts before so many output tokens; None for 0."""
    ignore_eos: bool | None = None
    """The end-of-sequence token does not end it; None if it does."""
    lora_name: str | None = None
    cache_salt_hash: str | None = None
    """Hash of the salt that keeps its blocks apart from others'; equal salts have equal hashes."""
    mm_items: list[MultiModalSpan] | None = None
    is_last_step: bool | None = None
    """Its job ends with it, as the client says; None if it does not say so."""
    this_func_call: str | None = None
    """The tool that its answer will call, if the client says."""
    after: list[str] | None = None
    """Requests after whose end it was sent, if the host knows them."""
    gap: Seconds | None = None
    """Seconds, at least, from the last of these ends to its arrival."""
    spacing: Seconds | None = None
    """Seconds, at least, from the arrival of the last one that ended to its own; None for 0."""


class RequestFinished(
    msgspec.Struct, tag_field="event", tag="request_finished", omit_defaults=True, kw_only=True, gc=False
):
    """A request reached a finished status; ``step`` is the last step that had begun."""

    step: Whole | None = None
    ts: Seconds | None = None
    policy: str | None = None
    req_id: str | None = None
    job_id: str | None = None
    status: str | None = None
    finish_reason: str | None = None
    """vLLM's; ``refused`` of a request that the engine turned away: it was in no queue."""
    arrival_time: Seconds | None = None
    first_scheduled_time: Seconds | None = None
    first_token_time: Seconds | None = None
    finished_time: Seconds | None = None
    num_prompt_tokens: Whole | None = None
    num_output_tokens: Whole | None = None
    num_cached_tokens: Whole | None = None
    """Prefix-cache hit when first scheduled, local and external."""
    num_external_computed_tokens: Whole | None = None
    num_preemptions: Whole | None = None
    recomputed_tokens: Whole | None = None
    """Tokens computed again after its preemptions."""
    output_hash_runs: list[Whole] | None = None
    """The full blocks that hold output, from the one in which the output begins, as ``prompt_hash_runs`` go on."""


class StepCompleted(
    msgspec.Struct, tag_field="event", tag="step_completed", omit_defaults=True, kw_only=True, gc=False
):
    """The model ran and its tokens were taken in."""

    step: Whole
    ts: Seconds | None = None
    policy: str | None = None
    step_seconds: Seconds | None = None
    """From the step's snapshot, or the end of the step before it if that came later, to here."""
    num_sampled_tokens: Whole | None = None
    num_drafts: Whole | None = None
    """Requests whose draft tokens were verified; this and the next two only where there are any."""
    num_draft_tokens: Whole | None = None
    num_accepted_tokens_per_pos: list[Whole] | None = None
    """How often the draft token at each position was accepted."""
    first_token_req_ids: list[str] | None = None
    """Requests that got their first token; this and the next two only where there are any."""
    paused_req_ids: list[str] | None = None
    """Requests that got a token in the sampling step before, get none in this one, and have not ended."""
    resumed_req_ids: list[str] | None = None
    """Requests that had paused and got a token again."""


class PauseChanged(msgspec.Struct, tag_field="event", tag="pause_changed", omit_defaults=True, kw_only=True, gc=False):
    """The host paused the scheduler or let it go on; ``step`` is the next step to run."""

    step: Whole | None = None
    ts: Seconds | None = None
    policy: str | None = None
    state: str | None = None
    """``unpaused``, ``paused_new`` (none is admitted) or ``paused_all`` (nothing is scheduled)."""


class CacheReset(msgspec.Struct, tag_field="event", tag="cache_reset", omit_defaults=True, kw_only=True, gc=False):
    """The host had a cache forgotten; ``step`` is the next step to run."""

    step: Whole | None = None
    ts: Seconds | None = None
    policy: str | None = None
    cache: str | None = None
    """``prefix``, ``connector`` or ``encoder``."""
    done: bool | None = None
    """Whether the cache was forgotten; false where that was not possible at that moment."""


class PinEnded(msgspec.Struct, tag_field="event", tag="pin_ended", omit_defaults=True, kw_only=True, gc=False):
    """Blocks of a finished turn, kept for the next turn of its job, are free; ``step`` is the next step to decide."""

    step: Whole | None = None
    ts: Seconds | None = None
    policy: str | None = None
    req_id: str | None = None
    """The turn whose blocks were kept."""
    job_id: str | None = None
    why: str | None = None
    """``used``, ``expired``, ``dropped``, ``replaced``, ``last_turn`` or ``reset``."""
    pinned_time: Seconds | None = None
    """When the turn ended."""
    pinned_blocks: Whole | None = None


class RequestRecord(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One queued request at one step (the requests file)."""

    step: Whole
    ts: Seconds | None = None
    queue: str | None = None
    """``running`` or ``waiting``."""
    req_id: str | None = None
    job_id: str | None = None
    status: str | None = None
    """``RequestStatus.RUNNING`` and so on."""
    priority: Whole | None = None
    arrival_time: Seconds | None = None
    max_tokens: Whole | None = None
    num_prompt_tokens: Whole | None = None
    num_tokens: Whole | None = None
    num_output_tokens: Whole | None = None
    num_computed_tokens: Whole | None = None
    num_cached_tokens: Whole | None = None
    num_preemptions: Whole | None = None
    num_external_computed_tokens: Whole | None = None
    is_prefill_chunk: bool | None = None
    resumable: bool | None = None
    prompt_prefix: list[Whole] | None = None
    prompt_suffix: list[Whole] | None = None
    output_tail: list[Whole] | None = None
    prompt_prefix_text: str | None = None
    output_tail_text: str | None = None
    block_hashes_count: Whole | None = None
    # ---- additive
    num_blocks: Whole | None = None
    """Blocks it holds."""


RequestEvent = RequestArrived | PrefixCacheLookup | RequestFinished | PinEnded
"""A record of the steps file about one request."""

HostEvent = PauseChanged | CacheReset | TraceEnd
"""A record of the steps file about something that the host did to the whole scheduler."""

StepEvent = (
    StepSnapshot
    | StepDecision
    | PrefixCacheLookup
    | TraceStart
    | AdmissionOutcome
    | RequestArrived
    | RequestFinished
    | StepCompleted
    | PauseChanged
    | CacheReset
    | PinEnded
    | TraceEnd
)
"""A record of the steps file."""

STEP_EVENTS: dict[str, type[StepEvent]] = {str(record.__struct_config__.tag): record for record in get_args(StepEvent)}
"""Value of ``event`` -> record."""


def json_value(value: object) -> object:
    """What to write for a value that JSON has no notation for: numbers of numpy as numbers, the rest as text."""
    listed = getattr(value, "tolist", None)
    return str(value) if listed is None else listed()
