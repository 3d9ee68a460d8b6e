/** Levels of detail of the trace on the page, rebuilt when it grows. Null until the first are there. */

import { effect, signal } from "@preact/signals";
import { levelsOfDetail } from "../data";
import type { LevelsOfDetail, Weighing } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";
import { axisKind } from "./axis";
import { revision, trace } from "./store";

export const levels = signal<LevelsOfDetail | null>(null);

/** While a trace is followed it grows all the time: rebuild at most so often. */
const PAUSE_MS = 500;

function isOf(found: LevelsOfDetail | null, store: TraceStore, by: Weighing): boolean {
  return found?.version === store.version && found.by === by;
}

export function startLevels(): void {
  let working = false;
  let built: TraceStore | null = null;
  const renew = async () => {
    const store = trace.peek();
    const by = axisKind.peek();
    if (working || !store || (built === store && isOf(levels.peek(), store, by))) return;
    working = true;
    if (built !== store) levels.value = null;
    const found = await levelsOfDetail(store, by);
    working = false;
    if (trace.peek() === store) {
      built = store;
      levels.value = found;
    }
    if (trace.peek() !== store || !isOf(found, store, axisKind.peek())) setTimeout(renew, PAUSE_MS);
  };
  effect(() => {
    revision.value;
    axisKind.value;
    if (trace.value) void renew();
    else levels.value = null;
  });
}
