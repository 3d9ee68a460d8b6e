/** How long one request took, in seconds: as the report counts it. */

import type { RequestIndex, Row } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { isCutShort } from "./status";
import type { StoreInside } from "./store";

/** NaN where the trace does not record it. */
export interface RequestTimes {
  /** Arrival to first scheduled. */
  queue: number;
  /** Arrival to first token. */
  ttft: number;
  /** Per token after the first. */
  tpot: number;
  /** Arrival to end. */
  e2e: number;
}

/** Steps that are missing between recorded ones would make pieced-together times wrong. */
export function tellsTimes({ livesRecorded, rows, steps }: StoreInside): boolean {
  return livesRecorded || (rows > 0 && steps.number[rows - 1] - steps.number[0] === rows - 1);
}

/** The row after which a request ended, as recorded; else the last in which it is seen; -1 if it did not end. */
export function endRowOf({ requests, livesRecorded }: StoreInside, request: RequestIndex): Row {
  const recorded = requests.finishedRow[request];
  if (recorded >= 0) return recorded;
  return livesRecorded || Number.isNaN(requests.finishedTime[request]) ? -1 : requests.lastRow[request];
}

/** `first`: the request with which its user came. */
export function timesOf(store: TraceStore, request: RequestIndex, first: RequestIndex = request): RequestTimes {
  const { requests } = store;
  const arrival = requests.arrivalTime[first];
  const token = requests.firstTokenTime[request];
  const end = isCutShort(store, request) ? Number.NaN : requests.finishedTime[request];
  const output = requests.outputTokens[request];
  return {
    queue: requests.firstScheduledTime[request] - arrival,
    ttft: token - arrival,
    tpot: output > 1 ? (end - token) / (output - 1) : Number.NaN,
    e2e: end - arrival,
  };
}
