/** The run along its clock, and where it was worst. */

import type { Range, RequestIndex } from "./columns";

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
  /** The reason that took most of it, its share, and how many it held back at once. */
  shown: number;
  share: number;
  mostByIt: number;
  /** The next one; null if there is none. */
  second: { shown: number; share: number } | null;
}

/** What a request had that others waited for: tokens of the steps, KV blocks, the head of the queue, a seat, a LoRA slot. */
export const HAD = ["tokens", "blocks", "head", "seat", "slot"] as const;
export type Had = (typeof HAD)[number];

export interface Culprit {
  request: RequestIndex;
  /** Request-seconds of others. */
  seconds: number;
  /** Of all that was lost for the same. */
  share: number;
  had: Had;
}

export interface Blame {
  range: Range;
  /** Request-seconds that could be put down to a request. */
  totals: Record<Had, number>;
  /** Of these what requests had that the trace, with its bound on ids, does not name. */
  unnamed: Record<Had, number>;
  /** Most first. */
  culprits: Culprit[];
  /** Null: no request stood in the queue. */
  victims: Victims | null;
  /** Most first. A request is in several: one for each thing that it has in common with others. */
  groups: BlamedGroup[];
}

export type Trait = "lora" | "job" | "req" | "user" | "tenant" | "priority" | "output" | "prompt";

/** The requests in the queue. */
export interface Victims {
  /** In the queue, within the stretch. */
  seconds: number;
  /** Of most of it; null if the trace has none. */
  priority: number | null;
  /** Most of it was theirs, and much more than of others; none if all waited alike. */
  groups: VictimGroup[];
  /** Then the few of one kind that shared most of it, the most first; none if they are not few. */
  parts: VictimGroup[];
}

export interface VictimGroup {
  key: Trait;
  name: string;
  seconds: number;
  share: number;
  /** Those that waited. */
  requests: number;
}

/** Sums of some requests, as far as they are known. */
export interface Asked {
  prompts: number;
  promptTokens: number;
  answers: number;
  outputTokens: number;
  /** Images, clips and videos, and the tokens that stand for them. */
  items: number;
  itemTokens: number;
}

/** A while in which many came. */
export interface Burst {
  requests: number;
  from: number;
  to: number;
}

/** Requests that have something in common; `key:"name"` is the filter that means them. */
export interface BlamedGroup {
  /** `req`: what their ids have before a number, `crawl_` of `crawl_093`. `prompt`: as long or longer. */
  key: Trait;
  name: string;
  seconds: number;
  share: number;
  requests: number;
  /** Requests of the whole trace that have it in common. */
  all: number;
  /** What they requested together. */
  asked: Asked;
  /** When the first and the last of `all` came; NaN: not known. */
  from: number;
  to: number;
  /** Where they always come, but most of them in a while; null: not, or the group has too little to be named. */
  burst: Burst | null;
  /** Of all requests of the trace. */
  part: number;
  had: Had;
}
