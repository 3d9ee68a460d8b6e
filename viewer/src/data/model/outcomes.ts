/** What the scheduler recorded of its refusals. */

import type { Lists, RequestIndex, Row, Whole } from "./columns";

/** `admission_outcome` records, by `steps.outcome[row]`, as columns: a blocked run has one per step. */
export interface OutcomeTable {
  count: number;
  row: Int32Array;
  /** Index into `kinds`, or -1. */
  kind: Int32Array;
  /** Index into `TraceStore.reasonNames`, or -1. */
  reason: Int32Array;
  /** The reason that held back most of the waiting requests, skipped ones included; -1 if none. */
  mainReason: Int32Array;
  /** Waiting requests that were held back or skipped. */
  held: Whole;
  request: Int32Array;
  numRequests: Whole;
  /** KV numbers in blocks; `limit` is an index into `limits`, or -1. */
  limit: Int32Array;
  needed: Whole;
  free: Whole;
  cachedHits: Whole;
  reserved: Whole;
  watermark: Whole;
  pinned: Whole;
  smallestNeed: Whole;
  wantedTokens: Whole;
  budgetLeft: Whole;
  /** Per outcome: reasons (indices into `reasonNames`) and how many requests each held back, skipped and running ones
   * that got no tokens included. */
  byReason: Lists & { requests: Whole };
  /** The lists of an outcome as JSON, or "": read them with `Data.outcome`. */
  rest: string[];
  kinds: string[];
  limits: string[];
}

/** One `admission_outcome` with its lists. */
export interface Outcome {
  row: Row;
  kind: string | null;
  reason: string | null;
  request: RequestIndex | null;
  numRequests: number | null;
  kv: KVNumbers | null;
  smallestNeed: number | null;
  wantedTokens: number | null;
  budgetLeft: number | null;
  skippedCounts: Record<string, number> | null;
  skipped: Refusal[];
  skippedOmitted: number;
  notScheduledCounts: Record<string, number> | null;
  notScheduled: Refusal[];
  notScheduledOmitted: number;
  preemptions: Preemption[];
}

export interface KVNumbers {
  limit: string | null;
  needed: number | null;
  free: number | null;
  cachedHits: number | null;
  reserved: number | null;
  watermark: number | null;
  pinned: number | null;
}

export interface Refusal {
  reason: string;
  request: RequestIndex | null;
  wantedTokens: number | null;
  budgetLeft: number | null;
  kv: KVNumbers | null;
}

export interface Preemption {
  request: RequestIndex;
  forRequest: RequestIndex | null;
  numComputedTokens: number | null;
  rolledBackTokens: number | null;
  kv: KVNumbers | null;
}
