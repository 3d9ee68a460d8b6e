/** Two traces beside each other. */

import type { RequestIndex, Row } from "./columns";
import type { RecordedReason } from "./moment";
import type { ReasonFamily } from "./reasons";

export type Alignment = "step" | "time" | "job";

/** A setting of the two headers; null where a header does not name it. */
export interface SettingDifference {
  /** `scheduler.max_num_seqs`. */
  name: string;
  a: string | null;
  b: string | null;
}

/** What one of the two did in the step in which their decisions part, and what it had before it. */
export interface DecidedSide {
  /** Only in this trace. */
  admitted: RequestIndex[];
  resumed: RequestIndex[];
  preempted: RequestIndex[];
  running: number | null;
  maxRunning: number | null;
  waiting: number | null;
  freeBlocks: number | null;
  totalBlocks: number | null;
  pinnedJobs: number | null;
  pinnedBlocks: number | null;
  tokens: number | null;
  tokenBudget: number | null;
  /** At the head of the waiting queue before the step; -1 where none is named. */
  firstInQueue: RequestIndex;
  refusal: RecordedReason | null;
}

export interface DecisionParting {
  /** In both traces. */
  row: Row;
  what: string;
  detail: string;
  a: DecidedSide;
  b: DecidedSide;
}

export interface JobSide {
  begin: number;
  end: number;
  waited: number;
  /** Its requests, and those of them that finished. */
  requests: number;
  finished: number;
}

export interface JobDifference {
  id: string;
  /** All its requests that are in both ask for the same. */
  alike: boolean;
  a: JobSide | null;
  b: JobSide | null;
}

/** Seconds; NaN where the trace does not record it. */
export interface RequestSide {
  request: RequestIndex;
  begin: number;
  /** Queued and preempted. */
  waited: number;
  queue: number;
  ttft: number;
  tpot: number;
  e2e: number;
  /** What those are at least that it has not. */
  floors: { queue: number; ttft: number; tpot: number; e2e: number };
  finished: boolean;
}

export interface RequestDifference {
  id: string;
  /** Its prompt is as long in both, and its answer may be. Requests of the same name may be quite others. */
  alike: boolean;
  a: RequestSide | null;
  b: RequestSide | null;
}

export interface Figure {
  label: string;
  unit: string;
  a: number | null;
  b: number | null;
  lessIsBetter: boolean | null;
  /** Whether that of A, and that of B, is a lower bound. */
  atLeast?: readonly boolean[];
}

/** Steps of a reconstructed bucket or of a recorded reason, and the request-seconds lost to the latter. */
export interface BucketDifference {
  name: string;
  family: ReasonFamily;
  recorded: boolean;
  a: number;
  b: number;
  lostA: number;
  lostB: number;
}

export interface Comparison {
  /** Null if one of the two has no header. */
  settings: SettingDifference[] | null;
  /** The first step in which anything differs; null if they never part. */
  parting: { rowA: Row; rowB: Row; what: string; detail: string } | null;
  /** The first step that decides differently; null if none does as far as both go. */
  decision: DecisionParting | null;
  /** Requests that arrived in A, in B, and in both, with the same work. */
  arrived: { a: number; b: number; both: number };
  /** Of the requests that have the same name in both: those that ask for the same, the others, and one of these in words. */
  work: { same: number; other: number; example: string | null };
  /** What leads from one run to the other, first causes first: cache hits, work, time lost. */
  chain: { name: string; a: number; b: number; unit: "share" | "tokens" | "seconds" | "count" }[];
  /** Every figure that both have. Latencies are of the requests that came in both; totals of unequal work have no better. */
  figures: Figure[];
  /** Recorded reasons, most time lost first, then the reconstructed buckets. */
  buckets: BucketDifference[];
  /** Jobs of either, the largest difference first. */
  jobs: JobDifference[];
  /** Requests of either, those of A first. */
  requests: RequestDifference[];
  /** The row of B that stands beside a row of A, and the other way round; -1 if there is none. */
  rowInB(rowA: Row, alignment: Alignment): Row;
  rowInA(rowB: Row, alignment: Alignment): Row;
}
