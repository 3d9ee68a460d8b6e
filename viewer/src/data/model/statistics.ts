/** What the Statistics tab shows. */

import type { Range, Row } from "./columns";
import type { Bucket, ReasonFamily } from "./reasons";

export interface Spread {
  mean: number;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  max: number;
  /** Of so many requests, where the trace does not tell of the others. */
  count?: number;
  /** Figures that are lower bounds: they rest on requests, or pauses, that have not ended. */
  atLeast?: readonly ("mean" | "p50" | "p90" | "p95" | "p99" | "max")[];
  /** So many are known to be at least 0, which is nothing. */
  unbounded?: number;
}

/** What became of everybody who arrived; of a part of the run: of those that ended in it, or, if it is the last, never did. */
export interface Outcomes {
  arrived: number;
  served: number;
  /** Turned away, or ended by an error. */
  refused: number;
  cancelled: number;
  unfinished: number;
}

export interface ReasonTotals {
  reason: string;
  family: ReasonFamily;
  steps: number;
  /** Requests held back, added over the steps. */
  requests: number;
  /** Request-seconds lost. */
  seconds: number;
  kv: {
    needed: number;
    free: number;
    cachedHits: number;
    reserved: number;
    watermark: number;
    smallestNeed: number | null;
    smallerWouldFitSteps: number;
  } | null;
}

/** One thing that steps are shown as, over a range. */
export interface Share {
  /** Index into `TraceStore.shown`. */
  index: number;
  rows: number;
  /** Of the clock, from each step to the next. */
  seconds: number;
  /** Request-seconds lost to this reason: each step's length times whom it held back, in other steps included. */
  lost: number;
  /** The first and the last row that are shown as it, or that held a request back for it. */
  first: Row;
  last: Row;
}

export interface Histogram {
  /** Counts per bin. */
  counts: number[];
  /** Mean of the shares, 0 .. 1; null if nothing was measured. */
  mean: number | null;
}

/** Everything that the Statistics tab shows; `range` is what it covers. */
export interface Statistics {
  range: Range;
  steps: number;
  seconds: number | null;
  /** Steps per bucket, in the order of BUCKETS, and per reason, in the order of STEP_REASONS. */
  buckets: number[];
  reasons: number[];
  /** Most time lost first; empty if the trace records none. */
  recorded: ReasonTotals[];
  /** Request-seconds between arrivals in the range and the first step that could see them; null if not known. */
  unseenSeconds: number | null;
  agreement: {
    compared: number;
    disagreeing: number;
    pairs: { bucket: Bucket; recorded: string; steps: number; agrees: boolean }[];
  } | null;
  /** Twenty bins of tokenSum / budget (a full budget is in the last), and a typical budget for the second scale. */
  tokenBudget: Histogram & { budget: number | null };
  /** Ten bins of hit / prompt over the lookups in the range, and the tokens behind them. */
  prefixHits: Histogram & {
    lookups: number;
    lookupsWithHit: number;
    promptTokens: number;
    localTokens: number;
    externalTokens: number;
    /** Per bin: tokens found locally, tokens found by a connector. */
    localByBin: number[];
    externalByBin: number[];
  };
  /** Means by time, as a monitor that looks now and then has them; those below are over the steps. */
  overTime: { running: number | null; waiting: number | null };
  /** Draft tokens verified, and accepted; null without speculation. */
  drafts: { tokens: number; accepted: number } | null;
  /** Requests that ended, by the reason, most first. */
  ends: { reason: string; requests: number }[];
  /** Between two tokens of an answer. */
  itlSeconds: Spread | null;
  running: Spread | null;
  waiting: Spread | null;
  /** 0 .. 1. */
  peakKvUse: number | null;
  preemptions: number | null;
  recomputedTokens: number | null;
  sampledTokens: number | null;
  /** Requests that ended in the range, but for attempts that were sent again. */
  finished: number;
  outcomes: Outcomes;
  /** What clients sent again, where they did: all other figures are of users, each with all its attempts. */
  attempts: { sent: number; again: number; lostTokens: number } | null;
  /** Sampled in the range if the trace says it, else of the requests that finished in it; those of attempts that were sent again are not among them. */
  outputTokens: number | null;
  requestsPerSecond: number | null;
  tokensPerSecond: number | null;
  queueSeconds: Spread | null;
  ttftSeconds: Spread | null;
  tpotSeconds: Spread | null;
  e2eSeconds: Spread | null;
  /** The times behind the four, NaN where it has none: place i of each is of the same request. */
  times: Record<"queue" | "ttft" | "tpot" | "e2e", number[]>;
  /** What the times of each unfinished request are at least. */
  open: Record<"queue" | "ttft" | "tpot" | "e2e", number>[];
  /** Nothing before this moment counts. */
  warmup: number | null;
}
