"""What buckets and reasons mean, in plain words: one sentence each, used wherever they are shown."""

from __future__ import annotations

from tokenyard.explain.held_back.classifier import BUCKET_OF, Bucket, StepReason
from tokenyard.trace.format.request_timeline import Place

__all__ = ["BUCKET_MEANING", "GAP_MEANING", "PLACE_MEANING", "REASON_MEANING", "meaning_of"]

BUCKET_MEANING = {
    Bucket.TOK_BUDGET: "the step's token budget was spent",
    Bucket.KV_EXHAUSTED: "too few free KV blocks",
    Bucket.MAX_SEQS: "as many running as allowed",
    Bucket.ALLOC_FRAG: "refused with many blocks free",
    Bucket.ALLOC_EXHAUSTED: "some admitted, then refused",
    Bucket.KV_TIGHT: "nearly full, not provably short",
    Bucket.ADMITTED_ALL: "every waiting request got in",
    Bucket.UNDER_CAPACITY: "nobody waited",
    Bucket.IDLE: "nothing to do",
    Bucket.UNKNOWN: "the trace lacks fields to tell",
}
"""What the classifier means by a bucket."""

REASON_MEANING = {
    "preempted_this_step": "A running request had just lost its blocks for want of memory; the freed blocks are kept "
    "for those that run, and nobody is admitted in such a step.",
    "paused": "The scheduler was paused.",
    "queues_empty": "Everybody who waited was looked at.",
    "token_budget": "The step's tokens (max_num_batched_tokens) were spent before these requests had their turn.",
    "max_num_seqs": "As many requests were running as max_num_seqs allows.",
    "prefill_exceeds_budget": "With chunked prefill off, the next prompt was longer than what was left of the step's "
    "tokens.",
    "kv_full_sequence": "The whole prompt of the first request in the queue did not fit the free KV blocks, and a "
    "request is admitted only when all of it fits (scheduler_reserve_full_isl).",
    "kv_blocks": "The first request in the queue needed more KV blocks for this step than were free.",
    "kv_reserved": "The free KV blocks were reserved for loads in flight.",
    "kv_watermark": "Admitting would have left fewer free KV blocks than the watermark keeps.",
    "encoder_budget": "The step's budget for image, audio or video inputs was used up.",
    "mamba_alignment": "What was left of the step's tokens did not fill a block of a state-space layer.",
    "mamba_state_not_ready": "The state that its cached prefix ends with was being computed in this very step.",
    "waiting_grammar": "The grammar of a structured output was still being compiled.",
    "waiting_remote_kv": "Its KV blocks were still on their way from elsewhere.",
    "waiting_stream_input": "Its next piece of input had not come.",
    "lora_slots": "All slots for LoRA adapters were taken by others in this step.",
    "connector_undecided": "The KV connector could not say yet what it has.",
    "encoder_cache_not_ready": "The encoder's result for an input was not there yet.",
    "async_kv_load_started": "The load of its KV blocks was started in this step.",
    "running_index_drift": "It stood behind a request that an idle victim made room for, and was passed over.",
    "placeholders_cover_limit": "Tokens in flight already reach its length limit.",
    "no_new_tokens": "All its known tokens are computed or in flight.",
    "self_preempted": "It needed a block, none was free, and it was itself next to give way.",
}
"""What a recorded reason means."""

GAP_MEANING = {
    "step_in_progress": "A step was running when it arrived; the scheduler decides when the next one begins.",
    "between_steps": "No step was running; the host had not begun the next one.",
    "not_recorded": "The trace does not tell: steps are left out of it, or their outcomes.",
    "not_listed": "One of several reasons; the trace's bound on ids leaves out which.",
}
"""What waiting time means that no decision explains."""

PLACE_MEANING = {
    Place.OWN: "itself",
    Place.BEHIND: "behind the head",
    Place.ALL: "everybody",
    Place.GUESS: "a guess",
    Place.OUTSIDE: "",
}
"""How a reason met a request, in a word."""


def meaning_of(reason: str, place: Place) -> str:
    """One sentence about what a request waited for."""
    if place is Place.OUTSIDE:
        return GAP_MEANING.get(reason, "")
    if place is Place.GUESS:
        guess = BUCKET_MEANING[BUCKET_OF[StepReason(reason)]]
        return f"No reason is recorded; from the step's counts: {guess}."
    return REASON_MEANING.get(reason, "A reason that this version does not know.")
