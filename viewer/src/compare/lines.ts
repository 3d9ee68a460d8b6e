/** The two runs as lines over a common axis. */

import { MISSING, type Whole } from "../data/model/columns";
import type { Level, LevelsOfDetail, SeriesName } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";

export interface Line {
  /** Step numbers, or seconds since the beginning of the run. */
  x: number[];
  /** NaN where nothing is known. */
  y: number[];
}

export type Quantity = "kv" | "running" | "waiting" | "tokens";

const SERIES: Record<Quantity, SeriesName> = {
  kv: "usedBlocks",
  running: "numRunning",
  waiting: "numWaiting",
  tokens: "tokenSum",
};

/** Means over the rows of each point. `by`: what the axis counts. KV use is a share of the pool in percent. */
export function lineOf(
  store: TraceStore,
  levels: LevelsOfDetail | null,
  quantity: Quantity,
  by: "step" | "time",
  points: number,
): Line {
  const level = levels?.pick(store.rows / Math.max(points, 1)) ?? null;
  const line: Line = { x: [], y: [] };
  const size = level ? 1 << level.k : 1;
  const total = quantity === "kv" ? poolOf(store) : 1;
  for (let row = 0; row < store.rows; row += size) {
    const x = by === "step" ? store.steps.number[row] : store.steps.ts[row] - store.steps.ts[0];
    if (!Number.isFinite(x) || x === MISSING || (line.x.length > 0 && x <= line.x[line.x.length - 1])) continue;
    const value = level ? meanOf(level, SERIES[quantity], row >> level.k) : single(store, quantity, row);
    line.x.push(x);
    line.y.push(quantity === "kv" ? (100 * value) / total : value);
  }
  return line;
}

function poolOf(store: TraceStore): number {
  for (let row = 0; row < store.rows; row++) if (store.steps.totalBlocks[row] > 0) return store.steps.totalBlocks[row];
  return Number.NaN;
}

function meanOf(level: Level, name: SeriesName, bin: number): number {
  return level.known[name][bin] > 0 ? level.sum[name][bin] / level.known[name][bin] : Number.NaN;
}

function single({ steps }: TraceStore, quantity: Quantity, row: number): number {
  const value = (column: Whole) => (column[row] === MISSING ? Number.NaN : column[row]);
  switch (quantity) {
    case "kv":
      return value(steps.totalBlocks) - value(steps.freeBlocks);
    case "running":
      return value(steps.numRunning);
    case "waiting":
      return value(steps.numWaiting);
    case "tokens":
      return value(steps.tokenSum);
  }
}

/** Both lines on the union of their places, null where a line has no point. */
export function joined(a: Line, b: Line): [number[], (number | null)[], (number | null)[]] {
  const x: number[] = [];
  const left: (number | null)[] = [];
  const right: (number | null)[] = [];
  let i = 0;
  let j = 0;
  while (i < a.x.length || j < b.x.length) {
    const at = Math.min(a.x[i] ?? Number.POSITIVE_INFINITY, b.x[j] ?? Number.POSITIVE_INFINITY);
    x.push(at);
    left.push(a.x[i] === at ? orNull(a.y[i++]) : null);
    right.push(b.x[j] === at ? orNull(b.y[j++]) : null);
  }
  return [x, left, right];
}

function orNull(value: number): number | null {
  return Number.isNaN(value) ? null : value;
}
