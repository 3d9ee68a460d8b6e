/** Two traces step by step: what stands in a row of the side-by-side list, and whether the two differ. */

import { differenceAt } from "../data";
import { MISSING, type Row, type Whole } from "../data/model/columns";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";

/** What is shown of one step of one trace. */
export interface Side {
  row: Row;
  step: number;
  /** Index into the trace's `shown`. */
  shown: number;
  running: number;
  waiting: number;
  tokens: number;
  free: number;
}

/** `seen`: the same numbers and the same decision, from another state, such as a queue in another order. */
export type Difference = "same" | "seen" | "differs" | "only A" | "only B";

const COMPARED = ["running", "waiting", "tokens", "free"] as const;

export function sideOf(store: TraceStore, row: Row): Side | null {
  if (row < 0 || row >= store.rows) return null;
  const { steps } = store;
  return {
    row,
    step: steps.number[row],
    shown: steps.shown[row],
    running: steps.numRunning[row],
    waiting: steps.numWaiting[row],
    tokens: steps.tokenSum[row],
    free: steps.freeBlocks[row],
  };
}

/** Numbers that one of the two does not tell are no difference. */
export function difference(a: Side | null, b: Side | null): Difference {
  if (!a || !b) return a ? "only A" : "only B";
  const apart = COMPARED.some((name) => a[name] !== b[name] && a[name] !== MISSING && b[name] !== MISSING);
  return apart ? "differs" : "same";
}

/** With the ids of both: what the same step decided, and on what. `what` says in words how the two differ. */
export function closely(a: TraceStore, b: TraceStore, pair: { a: Row; b: Row }): { kind: Difference; what: string } {
  const kind = difference(sideOf(a, pair.a), sideOf(b, pair.b));
  if (kind !== "same" || a.steps.number[pair.a] !== b.steps.number[pair.b]) return { kind, what: WORDS[kind] };
  const decided = differenceAt(a, b, pair.a, ["decided"], pair.b);
  const found = decided ?? differenceAt(a, b, pair.a, ["seen"], pair.b);
  if (!found) return { kind, what: WORDS.same };
  const closer = decided ? "differs" : "seen";
  return { kind: closer, what: `${WORDS[closer]}: ${found.what}, ${found.detail}` };
}

export const WORDS: Record<Difference, string> = {
  same: "the same",
  seen: "the same decision, from another state",
  differs: "differs",
  "only A": "only in A",
  "only B": "only in B",
};

/** Pairs of rows, in the order of the list: every row of A, then what B has beyond it. */
export interface Pairs {
  count: number;
  at(position: number): { a: Row; b: Row };
  /** Where a row of A stands. */
  ofA(row: Row): number;
}

/** By step or time, A leads: each of its rows stands beside the row of B that belongs to it. */
export function pairs(a: TraceStore, b: TraceStore, comparison: Comparison, alignment: "step" | "time"): Pairs {
  const lastB = a.rows > 0 ? comparison.rowInB(a.rows - 1, alignment) : -1;
  const tailFrom = lastB < 0 ? beyond(a, b, alignment) : lastB + 1;
  const tail = Math.max(b.rows - tailFrom, 0);
  return {
    count: a.rows + tail,
    at: (position) =>
      position < a.rows
        ? { a: position, b: comparison.rowInB(position, alignment) }
        : { a: -1, b: tailFrom + position - a.rows },
    ofA: (row) => row,
  };
}

/** A's last step has no partner: B's tail begins after it. */
function beyond(a: TraceStore, b: TraceStore, alignment: "step" | "time"): Row {
  const last = a.rows - 1;
  const column: Whole = alignment === "step" ? b.steps.number : b.steps.ts;
  const offset = alignment === "step" ? 0 : b.steps.ts[0] - a.steps.ts[0];
  const limit =
    last < 0 ? Number.NEGATIVE_INFINITY : (alignment === "step" ? a.steps.number : a.steps.ts)[last] + offset;
  let row = b.rows;
  while (row > 0 && column[row - 1] > limit) row -= 1;
  return row;
}

/** The next position at which the two differ, from `from` on; -1 if there is none. */
export function nextDifference(a: TraceStore, b: TraceStore, list: Pairs, from: number, direction: 1 | -1): number {
  for (let position = from + direction; position >= 0 && position < list.count; position += direction) {
    const pair = list.at(position);
    if (difference(sideOf(a, pair.a), sideOf(b, pair.b)) !== "same") return position;
  }
  return -1;
}
