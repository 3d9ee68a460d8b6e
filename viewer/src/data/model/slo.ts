/** Service-level objectives: bounds on the latencies of a request, and how many requests stayed within them. */

/** Milliseconds; null: no bound. */
export interface Bounds {
  readonly ttft: number | null;
  readonly tpot: number | null;
  readonly e2e: number | null;
}

export interface Goodput {
  requests: number;
  /** Unfinished ones that still may be. */
  open: number;
  /** Of everybody who arrived. */
  share: number;
  requestsPerSecond: number | null;
}
