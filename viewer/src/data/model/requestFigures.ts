/** Figures of every request, as columns: what the table of requests shows. */

import type { Status } from "../status";

/** Row i is of `request[i]`. Seconds, shares of 1 and counts; NaN where the trace does not record it. */
export interface RequestFigures {
  /** `version` of the store when they were computed. */
  version: number;
  count: number;
  request: Int32Array;
  /** What became of it: of STATUSES in data/status.ts. */
  status: Status[];
  /** Tokens of its prompt and of its answer. */
  prompt: Float64Array;
  output: Float64Array;
  /** Since the first step. */
  arrived: Float64Array;
  /** Queued, preempted and stalled together: `tokenyard why`. */
  waited: Float64Array;
  queue: Float64Array;
  ttft: Float64Array;
  tpot: Float64Array;
  e2e: Float64Array;
  /** What these four are at least where it has none: as `Person`. */
  floors: Record<"queue" | "ttft" | "tpot" | "e2e", Float64Array>;
  hit: Float64Array;
  preemptions: Float64Array;
  /** Place in the waiting queue in which it is first seen, from 1, and of how many. */
  place: Float64Array;
  placeOf: Float64Array;
  /** What it waited for most; "" if it did not wait. */
  reason: string[];
  /** By reason: seconds that each lost to it. */
  lost: Map<string, Float64Array>;
}
