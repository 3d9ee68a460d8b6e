/** Every request in figures: how long it waited and for what, how fast it was served, whom it held up. */

import { originOf } from "./clock";
import { MISSING, type Range, type RequestIndex, type Row } from "./model/columns";
import type { RequestFigures } from "./model/requestFigures";
import type { TraceStore } from "./model/trace";
import { LATENCIES, personOf } from "./population";
import { inSlices } from "./slices";
import { statusOf } from "./status";
import type { StoreInside } from "./store";
import { waitingSplit } from "./waiting";

const kept = new WeakMap<TraceStore, RequestFigures>();

/** Requests that were in a queue, in the order of the trace. */
export async function requestFigures(store: TraceStore, signal?: AbortSignal): Promise<RequestFigures> {
  const { requests, version } = store;
  const known = kept.get(store);
  if (known?.version === version) return known;
  const origin = originOf(store);
  const seen: RequestIndex[] = [];
  for (let request = 0; request < requests.count; request++) {
    if (requests.firstRow[request] >= 0 || requests.timesRecorded[request]) seen.push(request);
  }
  const count = seen.length;
  const column = () => new Float64Array(count).fill(Number.NaN);
  const found: RequestFigures = {
    version,
    count,
    request: Int32Array.from(seen),
    status: seen.map((request) => statusOf(store, request)),
    prompt: column(),
    output: column(),
    arrived: column(),
    waited: column(),
    queue: column(),
    ttft: column(),
    tpot: column(),
    e2e: column(),
    floors: { queue: column(), ttft: column(), tpot: column(), e2e: column() },
    hit: column(),
    preemptions: column(),
    place: column(),
    placeOf: column(),
    reason: new Array<string>(count).fill(""),
    lost: new Map(),
  };
  await inSlices(
    0,
    count - 1,
    (index) => {
      const request = seen[index];
      const { times, floors } = personOf(store as StoreInside, request);
      for (const name of LATENCIES) {
        found[name][index] = times[name];
        found.floors[name][index] = floors[name];
      }
      found.arrived[index] = requests.arrivalTime[request] - origin;
      found.hit[index] = hitShare(store, request);
      if (requests.promptTokens[request] !== MISSING) found.prompt[index] = requests.promptTokens[request];
      if (requests.outputTokens[request] !== MISSING) found.output[index] = requests.outputTokens[request];
      if (requests.numPreemptions[request] !== MISSING) found.preemptions[index] = requests.numPreemptions[request];
      const place = placeInQueue(store, requests.firstRow[request], request);
      if (place) [found.place[index], found.placeOf[index]] = [place.place, place.of];
      const split = waitingSplit(store, request);
      found.waited[index] = split.seconds;
      found.reason[index] = split.parts[0]?.reason ?? "";
      for (const { reason, us } of split.parts) {
        const lost = found.lost.get(reason) ?? new Float64Array(count);
        found.lost.set(reason, lost);
        lost[index] += us / 1e6;
      }
    },
    signal,
  );
  kept.set(store, found);
  return found;
}

/** 1 for each request that was there at some step of a range: from its arrival to its end. */
export function thereIn({ requests }: TraceStore, { first, last }: Range): Uint8Array {
  const { firstRow, lastRow, arrivedRow, finishedRow, count } = requests;
  return Uint8Array.from({ length: count }, (_, request) => {
    const [seen, arrived] = [firstRow[request], arrivedRow[request]];
    const begin = seen >= 0 && arrived >= 0 ? Math.min(seen, arrived) : Math.max(seen, arrived);
    const end = Math.max(lastRow[request], finishedRow[request], begin);
    return Number(begin >= 0 && begin <= last && end >= first);
  });
}

/** Share of its prompt that its first lookup found, locally and externally; NaN without one. */
function hitShare({ requests }: TraceStore, request: RequestIndex): number {
  const prompt = requests.lookupPromptTokens[request];
  if (requests.lookupRow[request] < 0 || !(prompt > 0)) return Number.NaN;
  return (Math.max(requests.localHitTokens[request], 0) + Math.max(requests.externalHitTokens[request], 0)) / prompt;
}

/** `14th of 40` in the waiting queue before a step; null if it is not among those that the trace names. */
export function placeInQueue(store: TraceStore, row: Row, request: RequestIndex): { place: number; of: number } | null {
  if (row < 0 || row >= store.rows) return null;
  const { waiting } = store.lists;
  const listed = waiting.counts[row];
  for (let at = 0; at < listed; at++) {
    if (waiting.ids[waiting.starts[row] + at] !== request) continue;
    const whole = store.steps.numWaiting[row];
    return { place: at + 1, of: whole === MISSING ? listed : whole };
  }
  return null;
}
