/**
 * Goodput: the requests that were served with each latency within its bound, as `tokenyard report --slo` counts them
 * (src/tokenyard/explain/slo.py).
 */

import type { Bounds, Goodput } from "./model/slo";
import type { Statistics } from "./model/statistics";
import type { RequestTimes } from "./requestTimes";

const BOUNDED = ["ttft", "tpot", "e2e"] as const;

export function isBounded(bounds: Bounds): boolean {
  return BOUNDED.some((name) => bounds[name] !== null);
}

/** A request that was aborted has no end-to-end time and meets nothing; an answer of one token has no TPOT to bound. */
export function meets(times: Omit<RequestTimes, "queue">, bounds: Bounds): boolean {
  return !(Number.isNaN(times.e2e) || Number.isNaN(times.ttft)) && isWithin(times, bounds);
}

function isWithin(times: Omit<RequestTimes, "queue">, bounds: Bounds): boolean {
  return BOUNDED.every((name) => !(times[name] * 1e3 > (bounds[name] ?? Number.POSITIVE_INFINITY)));
}

/** Null without a bound, and where the trace has no times. */
export function goodput({ times, open, seconds, ttftSeconds, outcomes }: Statistics, bounds: Bounds): Goodput | null {
  if (!isBounded(bounds) || (!ttftSeconds && !outcomes.refused)) return null;
  let requests = 0;
  times.e2e.forEach((e2e, at) => {
    requests += Number(meets({ ttft: times.ttft[at], tpot: times.tpot[at], e2e }, bounds));
  });
  const share = requests / times.e2e.length;
  const more = open.filter((each) => isWithin(each, bounds)).length;
  return { requests, open: more, share, requestsPerSecond: seconds ? requests / seconds : null };
}
