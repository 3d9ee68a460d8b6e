/** From which moment times are counted, and what the clock on the wall said. */

import type { TraceStore } from "./model/trace";

/** Seconds between the header and the first step up to which the header is the beginning of the run. */
const MOST_IDLE = 60;
/** Seconds since 1970 are larger than this, seconds since a machine was started are not. */
const UNIX = 1e9;

/**
 * Times shown count from here: from the trace's header, which the ranks of a run share, else from the first step. A server
 * may have idled for hours before its first step: then from that one.
 */
export function originOf({ start, steps, rows }: TraceStore): number {
  const first = rows > 0 ? steps.ts[0] : 0;
  const idle = first - (start?.ts ?? Number.NaN);
  return idle >= 0 && idle <= MOST_IDLE ? first - idle : first;
}

/** Times of the trace are Unix times: the wall's clock can be told. */
export function hasWallClock({ steps, rows }: TraceStore): boolean {
  return rows > 0 && steps.ts[0] > UNIX;
}

/** `14:03:07` of a time of the trace, in the zone of whoever looks. */
export function wallClock(ts: number): string {
  return new Date(ts * 1e3).toLocaleTimeString("en-GB");
}
