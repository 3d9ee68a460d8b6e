/** What is shown of one step, and of one request at one step. */

import type { RequestIndex } from "./columns";
import type { Outcome } from "./outcomes";
import type { Bucket, ReasonFamily, StepReason } from "./reasons";

/** Verdict of the classifier at one row, with its numbers. */
export interface Verdict {
  bucket: Bucket;
  reason: StepReason | null;
  unadmitted: number | null;
  effectiveFree: number | null;
  minNeed: number | null;
  /** Text of the dark-red badge: `16 blocked: alloc-rejected(free=533, allocator refused—hash/frag)`. Null: no badge. */
  badge: string | null;
}

/** The recorded reason at one row, put into words. */
export interface RecordedReason {
  outcome: Outcome;
  /** The reason that held back most of the waiting; null if the outcome names only running requests. */
  reason: string | null;
  held: number;
  family: ReasonFamily;
  meaning: string;
  /** `needed 700 blocks, free 533, of it 0 cached hits; smallest needs 347`. */
  numbers: string;
  /** Does the classifier's bucket say the same? Null if they cannot be compared. */
  agrees: boolean | null;
}

export type PillKind = "running" | "new" | "resumed" | "preempted" | "skipped-run" | "waiting";

/** One request at one step. `pinned` and `prefill` overlay the kind: eight categories in all. */
export interface Pill {
  request: RequestIndex;
  kind: PillKind;
  pinned: boolean;
  prefill: boolean;
  /** Exactly as document 000: `j0008, t9 (3) [385, fwd:1542t, 1542t left] hit:5/481(1%)`. */
  label: string;
  /** For narrow places, the same without its numbers: `j0008, t9`. */
  short: string;
  /** The recorded reason why it got nothing, if the trace names this very request. */
  reason: string | null;
}

export interface Pills {
  /** Running list in its order (running, skipped-run, preempted), then new, then resumed. */
  running: Pill[];
  /** Waiting and not admitted, in queue order. */
  waiting: Pill[];
  /** Ids left out of the trace by its bound. */
  runningOmitted: number;
  waitingOmitted: number;
}

/** A badge of the third column. */
export interface Badge {
  kind: "count" | "pinned" | "tokens" | "cached" | "vram" | "dram" | "blocked" | "recorded" | "recomputed";
  label: string;
  title: string;
  /** Tokens at or above 90 % of the budget. */
  hot?: boolean;
}

/** Everything known of one request at one row, as label and value, unknown fields of the trace included. */
export interface Detail {
  name: string;
  value: string;
  /** From which record: "snapshot", "decision", "request record", "lookup", "derived". */
  from: string;
}

export interface HeaderToken {
  kind:
    | "policy"
    | "gpu"
    | "model"
    | "kv"
    | "dram"
    | "jobs"
    | "steps"
    | "seconds"
    | "max-running"
    | "request-count"
    | "records"
    | "partial"
    | "source";
  text: string;
  /** Where it comes from, and what was assumed. */
  title: string;
}
