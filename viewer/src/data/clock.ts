/** From which moment times are counted, and what the clock on the wall said. */

import { moment } from "../format";
import { endOfRow } from "./lives";
import type { Row } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { rowAtTime } from "./store";

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

/** What lies from left to right: the trace's clock or, where it tells no times, the rows. */
export interface Clock {
  timed: boolean;
  /** Where a place among the rows lies, whole or not. */
  at(place: number): number;
  /** The row at it. */
  rowAt(at: number): Row;
}

export function clockOf(store: TraceStore): Clock {
  if (!hasTimes(store)) {
    const within = (at: number) => Math.min(Math.max(Math.floor(at), 0), store.rows - 1);
    return { timed: false, at: Number, rowAt: within };
  }
  const at = (place: number) => {
    const row = Math.min(Math.max(Math.floor(place), 0), store.rows - 1);
    const begin = store.steps.ts[row];
    return begin + Math.min(place - row, 1) * (endOfRow(store, row) - begin);
  };
  return { timed: true, at, rowAt: (moment) => rowAtTime(store, moment) };
}

/** Times are known, and rise: checked at both ends and in between, since a whole pass would cost with every frame. */
export function hasTimes(store: TraceStore): boolean {
  const { ts } = store.steps;
  const last = store.rows - 1;
  const middle = last >> 1;
  return last > 0 && ts[last] > ts[0] && ts[middle] >= ts[0] && ts[middle] <= ts[last];
}

/** Times of the trace are Unix times: the wall's clock can be told. */
export function hasWallClock({ steps, rows }: TraceStore): boolean {
  return rows > 0 && steps.ts[0] > UNIX;
}

/** `14:03:07` of a time of the trace, in the zone of whoever looks. */
export function wallClock(ts: number): string {
  return new Date(ts * 1e3).toLocaleTimeString("en-GB");
}

/** `7:32`, or `14:03:07` where the trace has the wall's clock. */
export function momentText(store: TraceStore, ts: number): string {
  return hasWallClock(store) ? wallClock(ts) : moment(ts - originOf(store));
}
