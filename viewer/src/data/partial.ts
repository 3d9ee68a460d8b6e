/** Whether a trace holds a whole run, by the rules and in the words of src/tokenyard/trace/reader.py. */

import { count } from "./labels";
import { MISSING } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { endRowOf } from "./requestTimes";
import type { StoreInside } from "./store";

/** The trace holds as many steps as its first record allows. */
export function isAtStepLimit({ rows, start, steps: { number } }: TraceStore): boolean {
  if (!start?.maxSteps || rows === 0) return false;
  return number[rows - 1] - number[0] + (start.everyN || 1) >= start.maxSteps;
}

/** How the trace shows that its run went on after it; null if it does not, and while it is followed or was not read to its end. */
export function partial(store: TraceStore): string | null {
  if (["reading", "following", "cancelled"].includes(store.stage)) return null;
  // In a trace that records neither arrivals nor ends they are pieced together from its queues.
  const { livesRecorded, requests } = store as StoreInside;
  const came = livesRecorded
    ? (request: number) => requests.arrivedRow[request] >= 0 || requests.arrivedStep[request] !== MISSING
    : (request: number) => requests.firstRow[request] >= 0;
  let [arrived, finished] = [0, 0];
  for (let request = 0; request < requests.count; request++) {
    if (came(request)) arrived += 1;
    if (endRowOf(store as StoreInside, request) >= 0) finished += 1;
  }
  const unfinished = store.start?.endedAt ? 0 : Math.max(arrived - finished, 0);
  const atLimit = isAtStepLimit(store);
  const signs: string[] = [];
  if (store.notes.cutOff) signs.push("its last line is cut off");
  if (atLimit) signs.push("it ends at its step limit");
  if (unfinished) signs.push(`${count(unfinished)} of ${count(arrived)} requests had not ended when it did`);
  if (signs.length === 0) return null;
  const why = atLimit ? "" : " What wrote it was interrupted, or still writes.";
  return `This trace is partial: ${signs.join(", and ")}.${why}`;
}
