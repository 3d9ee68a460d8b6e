/** From which moment times are counted, and what the clock on the wall showed. */

import { exactMoment, moment, shortMoment } from "../format";
import { endOfRow } from "./lives";
import type { Row } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { rowAtTime } from "./store";

/** Seconds between the header and the first step up to which the header is the beginning of the run. */
const MOST_IDLE = 60;
/** Seconds since 1970 are larger than this, seconds since a machine was started are not. */
const UNIX = 1e9;

type Timed = Pick<TraceStore, "start" | "steps" | "rows">;

/**
 * Times shown count from here: from the trace's header, which the ranks of a run share, else from the first step. A server
 * may have idled for hours before its first step: then from that one.
 */
export function originOf({ start, steps, rows }: Timed): number {
  const first = rows > 0 ? steps.ts[0] : 0;
  const idle = first - (start?.ts ?? Number.NaN);
  return idle >= 0 && idle <= MOST_IDLE ? first - idle : first;
}

/** What lies from left to right: the trace's clock or, where it has no times, the rows. */
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

/** What the wall's clock showed at 0 of the trace's, and how fast the trace's runs; null: the trace does not record it. */
function wallOf({ start, steps, rows }: Timed): { zero: number; speed: number } | null {
  if (rows > 0 && steps.ts[0] > UNIX) return { zero: 0, speed: 1 };
  const zero = start?.clockZero ?? 0;
  const speed = start?.clockSpeed ?? 1;
  return zero > UNIX && speed > 0 ? { zero, speed } : null;
}

/** The time of day of its steps is known: a link can name it. */
export function tellsTimeOfDay(store: Timed): boolean {
  return wallOf(store) !== null;
}

/** The wall's clock can be shown: a second of the trace is one of the wall. */
export function hasWallClock(store: Timed): boolean {
  return wallOf(store)?.speed === 1;
}

/** Seconds or milliseconds since 1970, else seconds since the beginning of the run, on the trace's clock. */
export function onClock(store: Timed, value: number): number {
  const seconds = value > 1e11 ? value / 1e3 : value;
  if (!(seconds > UNIX)) return originOf(store) + seconds;
  const { zero, speed } = wallOf(store) ?? { zero: 0, speed: 1 };
  return (seconds - zero) * speed;
}

/** On the wall, and milliseconds past the whole second. */
function dateOf(store: Timed, ts: number): Date {
  const { zero, speed } = wallOf(store) ?? { zero: 0, speed: 1 };
  return new Date(Math.round((zero + ts / speed) * 1e3));
}

const HOUR_MINUTE = 5;

/** `14:03:07` of a time of the trace, in the zone of the browser; `characters`: less of it. */
export function wallClock(store: Timed, ts: number, characters = 8): string {
  return dateOf(store, ts).toLocaleTimeString("en-GB").slice(0, characters);
}

/** `7:32`, or `14:03:07` where the trace has the wall's clock. */
export function momentText(store: Timed, ts: number): string {
  return hasWallClock(store) ? wallClock(store, ts) : moment(ts - originOf(store));
}

/** `7:32.125`, or `14:03:07.125`. */
export function exactText(store: Timed, ts: number): string {
  if (!hasWallClock(store)) return exactMoment(ts - originOf(store));
  return `${wallClock(store, ts)}.${String(dateOf(store, ts).getMilliseconds()).padStart(3, "0")}`;
}

/** What the clock that is shown says where times count from, in seconds: round moments are round on it. */
export function baseOf(store: Timed): number {
  if (!hasWallClock(store)) return 0;
  const date = dateOf(store, originOf(store));
  return 3_600 * date.getHours() + 60 * date.getMinutes() + date.getSeconds() + date.getMilliseconds() / 1e3;
}

/** At a mark of an axis: no longer than it has to be. */
export function markText(store: Timed, ts: number): string {
  if (!hasWallClock(store)) return shortMoment(ts - originOf(store));
  const date = dateOf(store, ts);
  if (date.getMilliseconds() > 0) return exactText(store, ts);
  return wallClock(store, ts, date.getSeconds() > 0 ? undefined : HOUR_MINUTE);
}

/** From when times count, in words. */
export function clockWords(store: Timed): string {
  return hasWallClock(store) ? "Times are of the day." : "Times count from the trace's start.";
}
