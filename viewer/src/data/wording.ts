/** What buckets and reasons mean, and which family each belongs to: the words of src/tokenyard/explain/render/wording.py. */

import {
  BUCKETS,
  type Bucket,
  type ReasonFamily,
  type ShownReason,
  STEP_REASONS,
  type StepReason,
} from "./model/reasons";

export const BUCKET_MEANING: Record<Bucket, string> = {
  "tok-budget": "the step's token budget was spent",
  "kv-exhausted": "too few free KV blocks",
  "max-seqs": "as many running as allowed",
  "alloc-frag": "refused with many blocks free",
  "alloc-exhausted": "some admitted, then refused",
  "kv-tight": "nearly full, not provably short",
  "admitted-all": "every waiting request got in",
  "under-capacity": "nobody waited",
  idle: "nothing to do",
  unknown: "the trace lacks fields to tell",
};

/** The bucket that absorbs a reason of the classifier. */
export const BUCKET_OF: Record<StepReason, Bucket> = {
  "tok-budget": "tok-budget",
  "kv-after-run": "kv-exhausted",
  "kv-insuf": "kv-exhausted",
  "kv-low": "kv-exhausted",
  "max-seqs": "max-seqs",
  "kv-tight-after-run": "kv-tight",
  "alloc-exhausted": "alloc-exhausted",
  "alloc-rejected": "alloc-frag",
  "kv-marginal": "kv-tight",
  unknown: "unknown",
};

/** What the classifier means by a reason. */
export const STEP_REASON_MEANING: Record<StepReason, string> = {
  "tok-budget": "At least 95 % of the step's token budget was given out.",
  "kv-after-run":
    "After the running requests' prefill, fewer blocks were free than the smallest waiting request needs.",
  "kv-insuf": "Fewer blocks were free than the smallest waiting request needs.",
  "kv-low": "Fewer than 20 blocks were free.",
  "max-seqs": "As many requests were running as max_num_seqs allows.",
  "kv-tight-after-run": "After the running requests' prefill, fewer than 200 blocks were free.",
  "alloc-exhausted": "Some requests were admitted, then one was refused.",
  "alloc-rejected": "More than 500 blocks were free and nobody was admitted: the head of the queue needed more.",
  "kv-marginal": "Between 20 and 500 blocks were free; which check fired cannot be told.",
  unknown: "The trace lacks the fields to tell.",
};

/** What a recorded reason means. */
export const REASON_MEANING: Record<string, string> = {
  preempted_this_step:
    "A running request had just lost its blocks for want of memory; the freed blocks are kept for those that run, " +
    "and nobody is admitted in such a step.",
  paused: "The scheduler was paused.",
  queues_empty: "Everybody who waited was looked at.",
  token_budget: "The step's tokens (max_num_batched_tokens) were spent before these requests had their turn.",
  max_num_seqs: "As many requests were running as max_num_seqs allows.",
  prefill_exceeds_budget:
    "With chunked prefill off, the next prompt was longer than what was left of the step's tokens.",
  kv_full_sequence:
    "The whole prompt of the first request in the queue did not fit the free KV blocks, and a request is admitted " +
    "only when all of it fits (scheduler_reserve_full_isl).",
  kv_blocks: "The first request in the queue needed more KV blocks for this step than were free.",
  kv_reserved: "The free KV blocks were reserved for loads in flight.",
  kv_watermark: "Admitting would have left fewer free KV blocks than the watermark keeps.",
  encoder_budget: "The step's budget for image, audio or video inputs was used up.",
  mamba_alignment: "What was left of the step's tokens did not fill a block of a state-space layer.",
  mamba_state_not_ready: "The state that its cached prefix ends with was being computed in this very step.",
  waiting_grammar: "The grammar of a structured output was still being compiled.",
  waiting_remote_kv: "Its KV blocks were still on their way from elsewhere.",
  waiting_stream_input: "Its next piece of input had not come.",
  lora_slots: "All slots for LoRA adapters were taken by others in this step.",
  connector_undecided: "The KV connector could not say yet what it has.",
  encoder_cache_not_ready: "The encoder's result for an input was not there yet.",
  async_kv_load_started: "The load of its KV blocks was started in this step.",
  running_index_drift: "It stood behind a request that an idle victim made room for, and was passed over.",
  placeholders_cover_limit: "Tokens in flight already reach its length limit.",
  no_new_tokens: "All its known tokens are computed or in flight.",
  self_preempted: "It needed a block, none was free, and it was itself next to give way.",
};

/** What waiting time means that no decision explains. */
export const GAP_MEANING: Record<string, string> = {
  step_in_progress: "A step was running when it arrived; the scheduler decides when the next one begins.",
  between_steps: "No step was running; the host had not begun the next one.",
  not_recorded: "The trace does not tell: steps are left out of it, or their outcomes.",
  not_listed: "One of several reasons; the trace's bound on ids leaves out which.",
};

const FAMILY: Record<string, ReasonFamily> = {
  "tok-budget": "tokens",
  token_budget: "tokens",
  prefill_exceeds_budget: "tokens",
  mamba_alignment: "tokens",
  placeholders_cover_limit: "tokens",
  no_new_tokens: "tokens",
  "kv-exhausted": "memory",
  "kv-tight": "memory",
  "alloc-exhausted": "memory",
  "kv-after-run": "memory",
  "kv-insuf": "memory",
  "kv-low": "memory",
  "kv-tight-after-run": "memory",
  "kv-marginal": "memory",
  kv_full_sequence: "memory",
  kv_blocks: "memory",
  kv_reserved: "memory",
  kv_watermark: "memory",
  "max-seqs": "sequences",
  max_num_seqs: "sequences",
  "alloc-frag": "order",
  "alloc-rejected": "order",
  running_index_drift: "order",
  preempted_this_step: "preempted",
  self_preempted: "preempted",
  paused: "dependency",
  encoder_budget: "dependency",
  mamba_state_not_ready: "dependency",
  waiting_grammar: "dependency",
  waiting_remote_kv: "dependency",
  waiting_stream_input: "dependency",
  lora_slots: "dependency",
  connector_undecided: "dependency",
  encoder_cache_not_ready: "dependency",
  async_kv_load_started: "dependency",
  "admitted-all": "healthy",
  "under-capacity": "healthy",
  queues_empty: "healthy",
  idle: "idle",
  between_steps: "idle",
  step_in_progress: "idle",
};

const OUT_OF_BLOCKS: readonly Bucket[] = ["kv-exhausted", "kv-tight", "alloc-exhausted"];

/** Recorded reason -> buckets that say the same, as in src/tokenyard/explain/held_back/agreement.py. */
export const FITTING_BUCKETS: Record<string, readonly Bucket[]> = {
  token_budget: ["tok-budget"],
  prefill_exceeds_budget: ["tok-budget"],
  max_num_seqs: ["max-seqs"],
  kv_full_sequence: OUT_OF_BLOCKS,
  kv_blocks: OUT_OF_BLOCKS,
  kv_reserved: OUT_OF_BLOCKS,
  kv_watermark: OUT_OF_BLOCKS,
  preempted_this_step: ["kv-exhausted", "kv-tight"],
};

export function familyOf(reason: string): ReasonFamily {
  return Object.hasOwn(FAMILY, reason) ? FAMILY[reason] : "unknown";
}

/** One sentence on a bucket, a reason of the classifier, a recorded one or a gap between decisions. */
export function meaningOf(reason: string): string {
  const tables: Record<string, string>[] = [REASON_MEANING, STEP_REASON_MEANING, BUCKET_MEANING, GAP_MEANING];
  for (const meanings of tables) {
    if (Object.hasOwn(meanings, reason)) return meanings[reason];
  }
  return "A reason that this version of the viewer does not know.";
}

export function agrees(bucket: Bucket, reason: string): boolean {
  return Object.hasOwn(FITTING_BUCKETS, reason) && FITTING_BUCKETS[reason].includes(bucket);
}

/** Buckets of steps that held nobody back, or of which nothing can be told. */
const NOT_BLOCKED: readonly Bucket[] = ["admitted-all", "under-capacity", "idle", "unknown"];

/** The table behind `steps.shown`: buckets of unblocked steps, the classifier's reasons, then recorded reasons. */
export function shownReasons(recorded: readonly string[]): ShownReason[] {
  const unblocked = NOT_BLOCKED.map((name) => entry(name, false, false, BUCKET_MEANING[name]));
  const guessed = STEP_REASONS.filter((name) => name !== "unknown").map((name) =>
    entry(name, false, true, STEP_REASON_MEANING[name]),
  );
  const room = 254 - unblocked.length - guessed.length;
  const named = recorded.slice(0, room).map((name) => entry(name, true, true, meaningOf(name)));
  return [...unblocked, ...guessed, ...named];
}

function entry(name: string, recorded: boolean, blocked: boolean, meaning: string): ShownReason {
  return { name, recorded, blocked, family: familyOf(name), meaning };
}

/** Index into `shownReasons` for each bucket (0 for those of blocked steps), each classifier's reason, each recorded one. */
export function shownIndices(table: readonly ShownReason[], recorded: readonly string[]) {
  const index = (name: string, isRecorded: boolean) =>
    table.findIndex((shown) => shown.name === name && shown.recorded === isRecorded);
  const unknown = index("unknown", false);
  const orUnknown = (found: number) => (found < 0 ? unknown : found);
  return {
    ofBucket: BUCKETS.map((name) => orUnknown(index(name, false))),
    ofReason: STEP_REASONS.map((name) => orUnknown(index(name, false))),
    ofRecorded: recorded.map((name) => orUnknown(index(name, true))),
  };
}
