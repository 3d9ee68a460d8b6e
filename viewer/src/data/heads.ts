/** The requests before a request: the refused heads of the queue behind which it waited, those that cost it most first. */

import type { Lists, RequestIndex, Row } from "./model/columns";
import type { TraceStore } from "./model/trace";
import type { WaitingSpan } from "./model/waiting";

export interface Head {
  request: RequestIndex;
  /** Whole microseconds, over all its turns at the head. */
  us: number;
  /** Stretches of time. */
  times: number;
  firstRow: Row;
}

export function headsOf(spans: readonly WaitingSpan[]): Head[] {
  const found = new Map<RequestIndex, Head>();
  for (const { head, startUs, endUs, firstRow } of spans) {
    if (head === null) continue;
    const known = found.get(head);
    if (known) {
      known.us += endUs - startUs;
      known.times += 1;
    } else {
      found.set(head, { request: head, us: endUs - startUs, times: 1, firstRow });
    }
  }
  return [...found.values()].sort((a, b) => b.us - a.us || a.firstRow - b.firstRow);
}

/** The first so many requests of the waiting queue before a step, head first. */
export function queueBefore(store: TraceStore, row: Row, most: number): Int32Array {
  return listed(store.lists.waiting, row).subarray(0, most);
}

/** The requests that were running before a step. */
export function runningAt(store: TraceStore, row: Row): Int32Array {
  return listed(store.lists.running, row);
}

function listed({ starts, counts, ids }: Lists, row: Row): Int32Array {
  return Int32Array.from(ids.subarray(starts[row], starts[row] + Math.max(counts[row], 0)));
}
