/** Every request of two traces: how long it waited and took in each. */

import { MISSING, type RequestIndex } from "./model/columns";
import type { RequestDifference, RequestSide } from "./model/comparison";
import type { TraceStore } from "./model/trace";
import { personOf } from "./population";
import { inSlices } from "./slices";
import { requestOf, type StoreInside } from "./store";
import { waitingSeconds } from "./waiting";

export async function requestDifferences(
  a: TraceStore,
  b: TraceStore,
  signal?: AbortSignal,
): Promise<RequestDifference[]> {
  const found: RequestDifference[] = [];
  await eachSeen(a, signal, (request) => {
    const id = a.requests.ids[request];
    const inB = requestOf(b, id);
    const both = inB >= 0 && isSeen(b, inB);
    const alike = both && otherWork(a, request, b, inB) === null;
    found.push({ id, alike, a: sideOf(a, request), b: both ? sideOf(b, inB) : null });
  });
  await eachSeen(b, signal, (request) => {
    const id = b.requests.ids[request];
    const inA = requestOf(a, id);
    if (inA < 0 || !isSeen(a, inA)) found.push({ id, alike: false, a: null, b: sideOf(b, request) });
  });
  return found;
}

/** What two requests of the same name ask for that is not the same, in words; null if it is as far as both show. */
export function otherWork(a: TraceStore, inA: RequestIndex, b: TraceStore, inB: RequestIndex): string | null {
  for (const [column, words] of [
    ["promptTokens", "prompt tokens"],
    ["maxTokens", "tokens at most"],
  ] as const) {
    const [one, other] = [a.requests[column][inA], b.requests[column][inB]];
    if (one !== MISSING && other !== MISSING && one !== other) return `${one} ${words} in A, ${other} in B`;
  }
  return null;
}

async function eachSeen(
  store: TraceStore,
  signal: AbortSignal | undefined,
  visit: (request: RequestIndex) => void,
): Promise<void> {
  await inSlices(0, store.requests.count - 1, (request) => isSeen(store, request) && visit(request), signal);
}

/** Ids that only an outcome names are no requests of the run. */
function isSeen({ requests }: TraceStore, request: RequestIndex): boolean {
  return requests.firstRow[request] >= 0 || requests.timesRecorded[request] > 0;
}

function sideOf(store: TraceStore, request: RequestIndex): RequestSide {
  const { times, floors } = personOf(store as StoreInside, request);
  return {
    ...{ request, ...times, floors },
    begin: store.requests.arrivalTime[request],
    waited: waitingSeconds(store, request),
    finished: !Number.isNaN(store.requests.finishedTime[request]),
  };
}
