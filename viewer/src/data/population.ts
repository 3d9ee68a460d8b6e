/** Who counts in a figure: everybody who arrived, as src/tokenyard/explain/population.py counts. */

import { endOfRow } from "./lives";
import { MISSING, type RequestIndex } from "./model/columns";
import type { Outcomes } from "./model/statistics";
import { endRowOf, type RequestTimes, tellsTimes, timesOf } from "./requestTimes";
import { endOf } from "./status";
import type { StoreInside } from "./store";

export const LATENCIES = ["queue", "ttft", "tpot", "e2e"] as const;

export interface Person {
  outcome: Exclude<keyof Outcomes, "arrived">;
  /** NaN where it has none. */
  times: RequestTimes;
  /** What a time that it has not is at least; infinite: it will never have one; else NaN. */
  floors: RequestTimes;
}

/** What each time is, or is at least. */
export function soFar(times: RequestTimes, floors: RequestTimes): RequestTimes {
  const found = { ...times };
  for (const name of LATENCIES) if (Number.isNaN(times[name])) found[name] = floors[name];
  return found;
}

/** It arrived and has not ended; ids that only an outcome or a queue names did not arrive where arrivals are recorded. */
export function isOpen(store: StoreInside, request: RequestIndex): boolean {
  const { requests, livesRecorded } = store;
  const came = livesRecorded ? requests.timesRecorded[request] > 0 : requests.firstRow[request] >= 0;
  return came && endRowOf(store, request) < 0;
}

export function personOf(store: StoreInside, request: RequestIndex): Person {
  const { requests, livesRecorded } = store;
  const outcome = endRowOf(store, request) < 0 ? "unfinished" : endOf(store, request);
  // Where steps are missing between recorded ones, nothing is known of whom the trace leaves in a queue.
  const isUnknown = outcome === "unfinished" && !tellsTimes(store);
  const arrival = isUnknown ? Number.NaN : requests.arrivalTime[request];
  const token = requests.firstTokenTime[request];
  let until = requests.finishedTime[request];
  let times = timesOf(store, request);
  if (outcome === "unfinished") {
    const scheduled = (livesRecorded ? requests.lookupTs : requests.firstScheduledTime)[request];
    // Where first tokens are told only with the end, it may have had one since it was scheduled.
    const isWhole = store.tellsTokens || !livesRecorded || Number.isNaN(scheduled);
    until = isWhole ? endOfRow(store, store.rows - 1) : scheduled;
    times = { queue: scheduled - arrival, ttft: token - arrival, tpot: Number.NaN, e2e: Number.NaN };
  }
  const never = outcome === "refused";
  const waited = never ? Number.POSITIVE_INFINITY : until - arrival;
  const most = livesRecorded ? requests.maxTokens[request] : MISSING;
  // Whatever is yet to come, the last of all its tokens cannot come before now.
  const least = most > 1 ? Math.max((until - token) / (most - 1), 0) || 0 : most === 1 ? Number.NaN : 0;
  const pace = Number.isNaN(arrival) ? arrival : never ? waited : least;
  const all = { queue: waited, ttft: waited, tpot: pace, e2e: waited };
  for (const name of LATENCIES) if (outcome === "served" || !Number.isNaN(times[name])) all[name] = Number.NaN;
  return { outcome, times, floors: all };
}
