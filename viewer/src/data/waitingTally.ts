/** The microseconds of a trace, and an account of what they passed with. */

import type { GAPS } from "../generated/vocabulary";
import type { RequestIndex, Row } from "./model/columns";
import type { TraceStore } from "./model/trace";
import type { WaitingPart, WaitingPlace, WaitingSpan, WaitState } from "./model/waiting";
import { familyOf, waitMeaning } from "./wording";

/** Seconds as whole microseconds, halves upward. */
export function micros(seconds: number): number {
  return Math.floor(seconds * 1e6 + 0.5);
}

/** Why a waiting request did not run. */
export interface Cause {
  reason: string;
  place: WaitingPlace;
  head: RequestIndex | null;
}

const outside = (reason: keyof typeof GAPS): Cause => ({ reason, place: "outside", head: null });
export const NOT_RECORDED = outside("not_recorded");
export const NOT_LISTED = outside("not_listed");
export const FRONT_END = outside("front_end");
export const STEP_IN_PROGRESS = outside("step_in_progress");
export const BETWEEN_STEPS = outside("between_steps");

/** When each row begins, in microseconds that never run backwards; and the last moment of the trace. */
export interface Moments {
  version: number;
  at: Float64Array;
  last: number;
}
const momentsOf = new WeakMap<TraceStore, Moments>();

export function moments(store: TraceStore): Moments {
  const found = momentsOf.get(store);
  if (found?.version === store.version) return found;
  const { rows, steps, requests } = store;
  const ends = new Float64Array(rows).fill(Number.NEGATIVE_INFINITY);
  for (let request = 0; request < requests.count; request++) {
    const row = requests.finishedRow[request];
    const finished = requests.finishedTime[request];
    if (row >= 0 && !Number.isNaN(finished)) ends[row] = Math.max(ends[row], micros(finished));
  }
  const at = new Float64Array(rows);
  let now = Number.NEGATIVE_INFINITY;
  let last = micros(store.start?.endedAt ?? Number.NEGATIVE_INFINITY);
  for (let row = 0; row < rows; row++) {
    if (!Number.isNaN(steps.ts[row])) now = Math.max(now, micros(steps.ts[row]));
    at[row] = now;
    const completed = steps.completedTs[row];
    if (!Number.isNaN(completed)) last = Math.max(last, micros(completed));
    now = Math.max(now, ends[row]);
  }
  const made = { version: store.version, at, last: Math.max(last, now) };
  momentsOf.set(store, made);
  return made;
}

/** Adds up what passes. */
export class Tally {
  readonly parts = new Map<string, WaitingPart>();
  readonly spans: WaitingSpan[] = [];
  /** Two parts may share one: a request that arrived while a step ran, and was refused by the next. */
  readonly rows = new Set<Row>();
  readonly byState: Record<WaitState, number> = { queued: 0, preempted: 0, stalled: 0 };

  pass(state: WaitState, cause: Cause, row: Row, startUs: number, endUs: number): void {
    if (!(endUs > startUs)) return;
    const us = endUs - startUs;
    this.byState[state] += us;
    this.rows.add(row);
    const key = `${cause.place} ${cause.reason}`;
    let part = this.parts.get(key);
    if (!part) {
      part = {
        reason: cause.reason,
        recorded: cause.place !== "guess" && cause.place !== "outside",
        place: cause.place,
        family: familyOf(cause.reason),
        meaning: waitMeaning(cause.reason, cause.place),
        us: 0,
        seconds: 0,
        steps: 0,
        firstRow: row,
        lastRow: -1,
      };
      this.parts.set(key, part);
    }
    part.us += us;
    part.seconds = part.us / 1e6;
    if (row !== part.lastRow) part.steps += 1;
    part.lastRow = row;
    this.extend(state, cause, row, startUs, endUs);
  }

  private extend(state: WaitState, cause: Cause, row: Row, startUs: number, endUs: number): void {
    const last = this.spans.at(-1);
    const same =
      last?.state === state && last.reason === cause.reason && last.place === cause.place && last.head === cause.head;
    if (last && same && last.endUs === startUs) {
      last.endUs = endUs;
      last.lastRow = row;
    } else {
      this.spans.push({ state, ...cause, firstRow: row, lastRow: row, startUs, endUs });
    }
  }
}
