/** Requests, their jobs, and the records of the requests file. */

import type { Lists, Whole } from "./columns";

/** What is known of each request for good. Times NaN, numbers MISSING where unknown. */
export interface RequestTable {
  count: number;
  /** Ids as in the trace: hostile text. Use `shortId` of data/labels.ts to show one. */
  ids: string[];
  /** Job, or -1. */
  job: Int32Array;
  /** From `request_arrived`, else from when it is first seen. */
  arrivalTime: Float64Array;
  /** When the scheduler got it, from `request_arrived`; NaN if the trace does not say. */
  takenInTime: Float64Array;
  firstScheduledTime: Float64Array;
  firstTokenTime: Float64Array;
  finishedTime: Float64Array;
  /** True for each of the times above if `request_arrived` / `request_finished` said it, not the queues. */
  timesRecorded: Uint8Array;
  /** The first and the last row at which it is in a queue, as far as the trace shows; -1 if it never is. */
  firstRow: Int32Array;
  lastRow: Int32Array;
  /** The row before which `request_arrived` stands, and the row after which `request_finished` does; -1 if unknown. */
  arrivedRow: Int32Array;
  finishedRow: Int32Array;
  /** Step that `request_arrived` names: the next one to run, which a sampled trace may not hold. */
  arrivedStep: Whole;
  promptTokens: Whole;
  maxTokens: Whole;
  outputTokens: Whole;
  priority: Whole;
  numPreemptions: Whole;
  recomputedTokens: Whole;
  /** Images, clips and videos of its prompt, and the tokens that stand for them; MISSING: none, or the trace has none. */
  items: Whole;
  itemTokens: Whole;
  /** Index into `TraceStore.finishReasons`, or -1. */
  finishReason: Int32Array;
  /** Its prefix_cache_lookup: the row, hits and prompt length; row -1 if there is none. */
  lookupRow: Int32Array;
  lookupStep: Whole;
  lookupTs: Float64Array;
  localHitTokens: Whole;
  externalHitTokens: Whole;
  lookupPromptTokens: Whole;
  /** Index into `TraceStore.adapters` and `TraceStore.tenants`, or -1. */
  adapter: Int32Array;
  tenant: Int32Array;
}

export interface JobTable {
  count: number;
  ids: string[];
  /** Requests of each job in order of arrival. */
  requests: Lists;
}

/** Per-request records (the requests file); row r has `first[r] .. first[r] + num[r] - 1`. */
export interface RecordTable {
  count: number;
  first: Int32Array;
  num: Int32Array;
  request: Int32Array;
  /** Bits of RECORD_FLAGS. */
  flags: Uint8Array;
  /** Index into `statuses`. */
  status: Uint8Array;
  statuses: string[];
  promptTokens: Whole;
  numTokens: Whole;
  outputTokens: Whole;
  computedTokens: Whole;
  cachedTokens: Whole;
  externalTokens: Whole;
  preemptions: Whole;
  /** Blocks it holds; MISSING in traces of other emitters. */
  blocks: Whole;
}

export const RECORD_FLAGS = { running: 1, waiting: 2, prefillChunk: 4, resumable: 8 } as const;
