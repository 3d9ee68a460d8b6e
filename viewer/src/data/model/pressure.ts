/** The run along its clock, and where it was worst. */

import type { RequestIndex } from "./columns";

export interface Pressure {
  /** Where the first slice begins on the trace's clock, and how long each is, in seconds. */
  from: number;
  width: number;
  slices: number;
  /** Times that are shown count from here. */
  origin: number;
  /** By reason, most time lost first: index into `TraceStore.shown`, request-seconds, and mean and most requests held per slice. */
  reasons: { shown: number; lost: number; held: Float64Array; most: Float64Array }[];
  /** Most requests held back at once, per slice. */
  most: Float64Array;
  /** Most requests that ran at once, and the largest share of the blocks in use, per slice. */
  mostRunning: Float64Array;
  mostKv: Float64Array;
  /** Means by time; `kv` as a share of the blocks. */
  running: Float64Array;
  waiting: Float64Array;
  kv: Float64Array;
  tokensPerSecond: Float64Array;
}

/** What one request got of the tokens. */
export interface TokenTrack {
  request: RequestIndex;
  tokens: number;
  /** By the slices of a Pressure. */
  perSecond: Float64Array;
}

/** Slices first .. last, in which much was lost. */
export interface Stretch {
  first: number;
  last: number;
  begin: number;
  end: number;
  /** Request-seconds, and most requests held back at once: by all reasons. */
  lost: number;
  most: number;
  /** The reason that took most of it, and its share. */
  shown: number;
  share: number;
}

export type Trait = "lora" | "job" | "req" | "user" | "tenant" | "priority" | "output" | "prompt";
