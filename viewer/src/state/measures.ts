/** Numbers that a filter asks of a step: `budget:40..45`, `running:12..`, `preempted:1..`. */

import { MISSING, type Whole } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";

/** `budget`, `kv` and `hit` are percentages; the rest are counts. */
export const MEASURES = ["budget", "kv", "hit", "running", "waiting", "preempted", "finished"] as const;
export type Measure = (typeof MEASURES)[number];

const PERCENTAGES: ReadonlySet<string> = new Set(["budget", "kv", "hit"]);

export interface Interval {
  from: number;
  to: number;
}

/**
 * Does a value lie in an interval? Counts include both ends. Percentages leave out the upper one, so that the bars of a
 * histogram do not share steps, but for 100 and above, and where both ends are the same.
 */
function lies(value: number, { from, to }: Interval, percentage: boolean): boolean {
  if (value < from) return false;
  return percentage && to < 100 && to > from ? value < to : value <= to || (percentage && to === 100);
}

/** The test of a row for one term; a row of which the number is not known does not pass. */
export function measureTest(store: TraceStore, measure: Measure, interval: Interval): (row: number) => boolean {
  const within = (value: number) => lies(value, interval, PERCENTAGES.has(measure));
  const { steps } = store;
  switch (measure) {
    case "budget":
      return share(steps.tokenSum, steps.tokenBudget, within);
    case "kv":
      return share(steps.freeBlocks, steps.totalBlocks, (free) => within(100 - free));
    case "running":
      return counts(steps.numRunning, within);
    case "waiting":
      return counts(steps.numWaiting, within);
    case "preempted":
      return counts(steps.numPreempted, within);
    case "hit":
      return marked(store, (mark) => {
        const { lookupRow, lookupPromptTokens, localHitTokens, externalHitTokens } = store.requests;
        for (let request = 0; request < store.requests.count; request++) {
          const prompt = lookupPromptTokens[request];
          if (lookupRow[request] < 0 || prompt <= 0) continue;
          const hit = Math.max(localHitTokens[request], 0) + Math.max(externalHitTokens[request], 0);
          if (within((100 * hit) / prompt)) mark(lookupRow[request]);
        }
      });
    case "finished": {
      const ended = new Uint32Array(store.rows);
      const { finishedRow, finishedTime, lastRow } = store.requests;
      for (let request = 0; request < store.requests.count; request++) {
        if (Number.isNaN(finishedTime[request])) continue;
        const row = finishedRow[request] >= 0 ? finishedRow[request] : lastRow[request];
        if (row >= 0) ended[row] += 1;
      }
      return (row) => within(ended[row]);
    }
  }
}

function counts(column: Whole, within: (value: number) => boolean): (row: number) => boolean {
  return (row) => column[row] !== MISSING && within(column[row]);
}

function share(part: Whole, whole: Whole, within: (percent: number) => boolean): (row: number) => boolean {
  return (row) => part[row] !== MISSING && whole[row] > 0 && within((100 * part[row]) / whole[row]);
}

function marked(store: TraceStore, fill: (mark: (row: number) => void) => void): (row: number) => boolean {
  const rows = new Uint8Array(store.rows);
  fill((row) => {
    rows[row] = 1;
  });
  return (row) => rows[row] === 1;
}
