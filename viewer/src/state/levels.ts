/** Levels of detail of the trace on the page, rebuilt when it grows. Null until the first are there. */

import { effect, signal } from "@preact/signals";
import { levelsOfDetail } from "../data";
import type { LevelsOfDetail } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";
import { revision, trace } from "./store";

export const levels = signal<LevelsOfDetail | null>(null);

/** While a trace is followed it grows all the time: rebuild at most so often. */
const PAUSE_MS = 500;

export function startLevels(): void {
  let working = false;
  let built: TraceStore | null = null;
  const renew = async () => {
    const store = trace.peek();
    if (working || !store || (built === store && levels.peek()?.version === store.version)) return;
    working = true;
    if (built !== store) levels.value = null;
    const found = await levelsOfDetail(store);
    working = false;
    if (trace.peek() === store) {
      built = store;
      levels.value = found;
    }
    if (trace.peek() !== store || found.version !== store.version) setTimeout(renew, PAUSE_MS);
  };
  effect(() => {
    revision.value;
    if (trace.value) void renew();
    else levels.value = null;
  });
}
