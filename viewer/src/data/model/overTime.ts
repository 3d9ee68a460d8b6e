/** Quantities in slices of the clock; NaN where a slice holds none. */

export interface Percentiles {
  p50: number[];
  p95: number[];
  p99: number[];
}

export interface OverTime {
  /** Middle of each slice, in seconds since the first step of the trace. */
  at: number[];
  /** Length of a slice. */
  seconds: number;
  /** Means by time. */
  running: number[];
  waiting: number[];
  /** Length of the slices of the next two: a whole number of slices, which all have the same value. */
  secondsOfRates: number;
  /** Requests that ended, and of them those that met all bounds; null without a bound. */
  requestsPerSecond: number[];
  goodPerSecond: number[] | null;
  /** Requests that were aborted, refused or failed, in number. */
  cutShort: number[];
  /** Output tokens. */
  tokensPerSecond: number[];
  /** Share of the prompt tokens looked up that were found, 0 .. 1. */
  hitRate: number[];
  /** Seconds, of the requests whose first token came in the slice, or which ended in it. */
  ttft: Percentiles;
  tpot: Percentiles;
  e2e: Percentiles;
}
