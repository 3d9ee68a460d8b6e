/** What became of each request: as far as the trace shows. */

import type { RequestIndex } from "./model/columns";
import type { TraceStore } from "./model/trace";

/** Finish reasons of requests that did not get what they requested; they have no end-to-end time. */
const CUT_SHORT: ReadonlyMap<string, Status> = new Map([
  ["abort", "aborted"],
  ["error", "failed"],
  ["refused", "refused"],
]);

/** Of requests that were cut short. */
export const WRONG: ReadonlySet<Status> = new Set(CUT_SHORT.values());

export const STATUSES = {
  finished: "it ended as it should: at its length limit, its stop word or its last token",
  aborted: "its client gave it up, or it was cancelled: it did not get what it asked for",
  failed: "it ended with an error",
  refused: "the engine turned it away",
  running: "it ran when the trace ended",
  waiting: "it waited when the trace ended",
} as const;
export type Status = keyof typeof STATUSES;

/** The request did not get what it asked for. */
export function isCutShort(store: TraceStore, request: RequestIndex): boolean {
  return CUT_SHORT.has(store.finishReasons[store.requests.finishReason[request]]);
}

/** What became of a request that ended. */
export function endOf({ requests, finishReasons }: TraceStore, request: RequestIndex) {
  const status = CUT_SHORT.get(finishReasons[requests.finishReason[request]]);
  return !status ? "served" : status === "aborted" ? "cancelled" : "refused";
}

export function statusOf({ requests, finishReasons, spans, rows }: TraceStore, request: RequestIndex): Status {
  if (!Number.isNaN(requests.finishedTime[request])) {
    return CUT_SHORT.get(finishReasons[requests.finishReason[request]]) ?? "finished";
  }
  const last = (spans.starts[request + 1] ?? 0) - 1;
  const ranLast = last >= spans.starts[request] && spans.kind[last] === 2 && spans.last[last] >= rows - 1;
  return ranLast ? "running" : "waiting";
}
