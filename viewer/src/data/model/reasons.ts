/** Buckets, reasons, and what a step can be shown as. */

export const NO_REASON = 255;

/** The ten buckets, in the order of the classifier's enumeration. */
export const BUCKETS = [
  "tok-budget",
  "kv-exhausted",
  "max-seqs",
  "alloc-frag",
  "alloc-exhausted",
  "kv-tight",
  "admitted-all",
  "under-capacity",
  "idle",
  "unknown",
] as const;

export type Bucket = (typeof BUCKETS)[number];

/** The ten reasons of a blocked step, in order of priority. */
export const STEP_REASONS = [
  "tok-budget",
  "kv-after-run",
  "kv-insuf",
  "kv-low",
  "max-seqs",
  "kv-tight-after-run",
  "alloc-exhausted",
  "alloc-rejected",
  "kv-marginal",
  "unknown",
] as const;

export type StepReason = (typeof STEP_REASONS)[number];

/** Few colours: every bucket and every recorded reason belongs to one family. */
export type ReasonFamily =
  | "tokens" // the step's token budget
  | "memory" // KV blocks
  | "sequences" // max_num_seqs
  | "order" // alloc-frag and others: refused though room is left
  | "preempted" // somebody had just lost his blocks
  | "dependency" // waits for something outside: grammar, remote KV, encoder, LoRA slot, input
  | "healthy" // everybody got in, or nobody waited
  | "idle"
  | "unknown";

/** One thing a step can be shown as. */
export interface ShownReason {
  /** `kv_blocks` (recorded), `kv-after-run` (reconstructed) or `under-capacity` (nobody was held back). No name twice. */
  name: string;
  recorded: boolean;
  /** Somebody was held back. */
  blocked: boolean;
  family: ReasonFamily;
  /** One sentence. */
  meaning: string;
}
