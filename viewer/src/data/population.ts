/**
 * Who counts in a figure: everybody who arrived, as src/tokenyard/explain/population.py counts. A user is one arrival with
 * all its attempts: it came when its first one did, and whatever became of the last one became of it.
 */

import { endOfRow } from "./lives";
import { MISSING, type RequestIndex } from "./model/columns";
import type { Outcomes } from "./model/statistics";
import { endRowOf, type RequestTimes, tellsTimes, timesOf } from "./requestTimes";
import { endOf } from "./status";
import { requestOf, type StoreInside } from "./store";

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

/** What clients sent again: which attempts those are, and as whose they count. */
export class Attempts {
  /** Attempt -> the one before, which its client gave up. */
  private readonly before = new Map<RequestIndex, RequestIndex>();
  private readonly sentAgain = new Set<RequestIndex>();

  /** `counts`: those that do. */
  constructor(store: StoreInside, counts: (request: RequestIndex) => boolean = () => true) {
    const { ids, count } = store.requests;
    for (let request = 0; request < count; request++) {
      const id = attemptBefore(ids[request]);
      const before = id === null ? -1 : requestOf(store, id);
      if (before < 0 || !counts(request) || !counts(before)) continue;
      const isThere = endRowOf(store, request) >= 0 || isOpen(store, request);
      if (!isThere || endRowOf(store, before) < 0 || endOf(store, before) !== "cancelled") continue;
      this.before.set(request, before);
      this.sentAgain.add(before);
    }
  }

  get number(): number {
    return this.sentAgain.size;
  }

  /** Whether a later attempt counts for it. */
  goesOn(request: RequestIndex): boolean {
    return this.sentAgain.has(request);
  }

  /** The first attempt of its user. */
  firstOf(request: RequestIndex): RequestIndex {
    let first = request;
    for (let before = this.before.get(first); before !== undefined; before = this.before.get(first)) first = before;
    return first;
  }
}

/** What the attempt before was called, by the id of a request that was sent again; null: it looks like none. */
function attemptBefore(id: string): string | null {
  const at = id.lastIndexOf("~");
  const number = at < 0 || !/^\d+$/.test(id.slice(at + 1)) ? 0 : Number(id.slice(at + 1));
  return number < 2 ? null : number === 2 ? id.slice(0, at) : `${id.slice(0, at)}~${number - 1}`;
}

/** `first`: the first attempt of its user, with which that came. */
export function personOf(store: StoreInside, request: RequestIndex, first: RequestIndex = request): Person {
  const { requests, livesRecorded } = store;
  const outcome = endRowOf(store, request) < 0 ? "unfinished" : endOf(store, request);
  // Where steps are missing between recorded ones, nothing is known of whom the trace leaves in a queue.
  const isUnknown = outcome === "unfinished" && !tellsTimes(store);
  const arrival = isUnknown ? Number.NaN : requests.arrivalTime[first];
  const token = requests.firstTokenTime[request];
  let until = requests.finishedTime[request];
  let times = timesOf(store, request, first);
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
