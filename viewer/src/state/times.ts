/** Times of a request that a filter asks for: `ttft:30s..`, `tpot:..80ms`, `waited:1s..2s`. */

import { waitingSplit } from "../data";
import type { Range, RequestIndex } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import type { WaitingSpan } from "../data/model/waiting";
import { timesOf } from "../data/requestTimes";
import { secondsTyped } from "../format";

export const TIMES = ["queue", "ttft", "tpot", "e2e", "waited"] as const;
export type Time = (typeof TIMES)[number];

/** Seconds, both ends included: `30s..`, `..80ms`, `40..80ms`. A bare number has the unit of the other end, else seconds. */
export function secondsBetween(text: string): [number, number] | null {
  const ends = text.toLowerCase().replace(/[_,]/g, "").split("..");
  if (ends.length > 2 || !ends.some(Boolean)) return null;
  const unit = ends.map((end) => /[a-z]+$/.exec(end)?.[0]).find(Boolean) ?? "s";
  const seconds = (end: string, open: number) =>
    end === "" ? open : (secondsTyped(end) ?? secondsTyped(end + unit) ?? Number.NaN);
  const from = seconds(ends[0], Number.NEGATIVE_INFINITY);
  const to = ends.length > 1 ? seconds(ends[1], Number.POSITIVE_INFINITY) : from;
  if (Number.isNaN(from) || Number.isNaN(to)) return null;
  return from <= to ? [from, to] : [to, from];
}

/** A figure of a request, in seconds; NaN where the trace does not record it. */
export function timeOf(store: TraceStore, time: Time, request: RequestIndex): number {
  return time === "waited" ? waitingSplit(store, request).seconds : timesOf(store, request)[time];
}

/** Whether a request lost time to a reason of which this is a part, or to a reason of this family: in some rows, else ever. */
export function lostTo(store: TraceStore, part: string, request: RequestIndex, within: Range | null): boolean {
  const { parts, spans } = waitingSplit(store, request);
  const there = ({ reason, firstRow, lastRow }: WaitingSpan, name: string) =>
    reason === name && (!within || (firstRow <= within.last && lastRow >= within.first));
  return parts.some(
    ({ reason, family, us }) =>
      us > 0 && (reason.toLowerCase().includes(part) || family === part) && spans.some((span) => there(span, reason)),
  );
}
