/** Which lanes are shown, and in which order. */

import type { Lanes } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";

export const ORDERS = { arrival: "arrival", wait: "longest wait, summed", length: "longest life", id: "name" } as const;
export type Order = keyof typeof ORDERS;

/** Lanes by position, top to bottom. `requests`: 1 for each request that the filter means; null for all. */
export function orderLanes(store: TraceStore, lanes: Lanes, order: Order, requests: Uint8Array | null): Int32Array {
  const shown = requests ? filtered(store, lanes, requests) : everyLane(lanes.count);
  switch (order) {
    case "arrival":
      return shown;
    case "id":
      return byName(store, lanes, shown);
    case "wait":
      return descending(shown, (lane) => lanes.waited[lane]);
    case "length":
      return descending(shown, (lane) => lanes.lastRow[lane] - lanes.firstRow[lane]);
  }
}

function everyLane(count: number): Int32Array {
  const all = new Int32Array(count);
  for (let lane = 0; lane < count; lane++) all[lane] = lane;
  return all;
}

function filtered(store: TraceStore, lanes: Lanes, requests: Uint8Array): Int32Array {
  const wanted = new Uint8Array(store.jobs.count);
  for (let request = 0; request < store.requests.count; request++) {
    const job = store.requests.job[request];
    if (requests[request] === 1 && job >= 0) wanted[job] = 1;
  }
  const found = new Int32Array(lanes.count);
  let kept = 0;
  for (let lane = 0; lane < lanes.count; lane++) {
    const job = lanes.job[lane];
    if (job >= 0 ? wanted[job] === 1 : requests[lanes.request[lane]] === 1) found[kept++] = lane;
  }
  return found.slice(0, kept);
}

export function laneName(store: TraceStore, lanes: Lanes, lane: number): string {
  const job = lanes.job[lane];
  return job >= 0 ? store.jobs.ids[job] : store.requests.ids[lanes.request[lane]];
}

/** Beyond so many, names are compared letter by letter: comparing the numbers in them takes seconds for a million. */
const MOST_COLLATED = 20_000;

function byName(store: TraceStore, lanes: Lanes, shown: Int32Array): Int32Array {
  const name = (lane: number) => laneName(store, lanes, lane);
  const collate = new Intl.Collator("en", { numeric: true }).compare;
  const letters = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  const compare = shown.length > MOST_COLLATED ? letters : collate;
  return shown.sort((a, b) => compare(name(a), name(b)) || a - b);
}

const INDEX_SIZE = 2 ** 21;

/**
 * Largest first, ties in order of arrival. Sorting a million positions by a comparison function takes seconds; so the
 * 32 bits of each value as a float and its position are packed into one exact number, and those are sorted natively.
 */
function descending(shown: Int32Array, measure: (lane: number) => number): Int32Array {
  if (shown.length > INDEX_SIZE) return shown;
  const packed = new Float64Array(shown.length);
  const float = new Float32Array(1);
  const bits = new Uint32Array(float.buffer);
  for (let at = 0; at < shown.length; at++) {
    float[0] = Math.max(measure(shown[at]) || 0, 0);
    packed[at] = (0xffffffff - bits[0]) * INDEX_SIZE + at;
  }
  packed.sort();
  return Int32Array.from(packed, (value) => shown[value % INDEX_SIZE]);
}
