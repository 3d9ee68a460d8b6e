/** The steps of a trace, a row each. */

import type { Lists, Whole } from "./columns";

/** One number per row. Names are those of docs/trace-format.md unless a comment says more. */
export interface StepColumns {
  number: Whole;
  /** Of the snapshot, else of the decision, else of the first request record. NaN if unknown. */
  ts: Float64Array;
  freeBlocks: Whole;
  totalBlocks: Whole;
  /** Before the step, as everything up to `skippedWaiting`. */
  numRunning: Whole;
  numWaiting: Whole;
  numPinned: Whole;
  pinnedBlocks: Whole;
  cpuFreeBlocks: Whole;
  cpuTotalBlocks: Whole;
  tokenBudget: Whole;
  maxRunning: Whole;
  gpuCachedBlocks: Whole;
  skippedWaiting: Whole;
  runningOmitted: Whole;
  waitingOmitted: Whole;
  /** Lengths of the decision's lists, ids left out included. */
  numNew: Whole;
  numResumed: Whole;
  numPreempted: Whole;
  tokenSum: Whole;
  recomputedTokens: Whole;
  /** `runningConsumed` of the classifier, in blocks. */
  runningConsumed: Whole;
  /** `minNeed` of the classifier, in blocks; known once request records are attached. */
  minNeed: Whole;
  /** Seconds from snapshot to completion, and when it completed. NaN if unknown. */
  stepSeconds: Float64Array;
  completedTs: Float64Array;
  sampledTokens: Whole;
  /** Draft tokens that were verified, and those of them that were accepted. */
  draftTokens: Whole;
  acceptedTokens: Whole;
  /** Row in `OutcomeTable`, or -1. */
  outcome: Int32Array;
  // ---- derived
  /** Index into `BUCKETS`. */
  bucket: Uint8Array;
  /** Index into `STEP_REASONS`, or NO_REASON. */
  stepReason: Uint8Array;
  /** Waiting requests that were not admitted; MISSING if unknown. */
  unadmitted: Whole;
  /** Free blocks less `runningConsumed`. */
  effectiveFree: Whole;
  /**
   * What the step is coloured and filtered by: index into `TraceStore.shown`. The recorded reason where one was recorded
   * and held a request back; else the classifier's fine reason if one waited; else the bucket.
   */
  shown: Uint8Array;
}

export interface StepLists {
  /** Requests, in the order of the trace. */
  running: Lists;
  waiting: Lists;
  scheduledNew: Lists;
  scheduledResumed: Lists;
  scheduledRunning: Lists;
  preempted: Lists;
  /** Jobs. */
  pinnedJobs: Lists;
  /** `num_scheduled_tokens`: requests, and beside them their tokens. */
  scheduled: Lists & { tokens: Whole };
  /** Whose tokens paused (0), went on (1) or began (2) with a step. */
  streams: Lists & { kinds: Whole };
}
