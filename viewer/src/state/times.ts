/** Times of a request that a filter asks for: `ttft:30s..`, `tpot:..80ms`, `waited:1s..2s`. */

import { waitingSplit } from "../data";
import type { RequestIndex } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { timesOf } from "../data/requestTimes";

export const TIMES = ["ttft", "tpot", "e2e", "waited"] as const;
export type Time = (typeof TIMES)[number];

const ENDS = /^(?:([\d_,]+(?:\.\d+)?|\.\d+)(ms|s)?)?(\.\.)?(?:([\d_,]+(?:\.\d+)?|\.\d+)(ms|s)?)?$/i;

/** Seconds, both ends included: `30s..`, `..80ms`, `40..80ms`. A bare number has the unit of the other end, else seconds. */
export function secondsBetween(text: string): [number, number] | null {
  const found = ENDS.exec(text);
  if (!found) return null;
  const [, low, lowUnit, dots, high, highUnit] = found;
  if (low === undefined && high === undefined) return null;
  if (!dots && high !== undefined) return null;
  const seconds = (digits: string | undefined, unit: string | undefined, open: number) => {
    if (digits === undefined) return open;
    return Number(digits.replace(/[_,]/g, "")) / (unit?.toLowerCase() === "ms" ? 1000 : 1);
  };
  const from = seconds(low, lowUnit ?? highUnit, Number.NEGATIVE_INFINITY);
  const to = dots ? seconds(high, highUnit ?? lowUnit, Number.POSITIVE_INFINITY) : from;
  if (Number.isNaN(from) || Number.isNaN(to)) return null;
  return from <= to ? [from, to] : [to, from];
}

/** A figure of a request, in seconds; NaN where the trace does not tell. */
export function timeOf(store: TraceStore, time: Time, request: RequestIndex): number {
  return time === "waited" ? waitingSplit(store, request).seconds : timesOf(store, request)[time];
}

/** Whether a request lost time to a reason of which this is a part, or to a reason of this family. */
export function lostTo(store: TraceStore, part: string, request: RequestIndex): boolean {
  return waitingSplit(store, request).parts.some(
    ({ reason, family, us }) => us > 0 && (reason.toLowerCase().includes(part) || family === part),
  );
}
