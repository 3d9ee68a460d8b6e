/** How full the block pools were, at most a point per pixel: what the occupancy charts draw. */

import { MISSING, type Range, type Whole } from "../data/model/columns";
import type { Level, LevelsOfDetail } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";

/** Means over the rows of each point, in blocks; NaN where nothing is known. They stack to `total`. */
export interface Occupancy {
  /** First row of each point; the last point stands at the last row. */
  rows: number[];
  /** Held by requests that run or are being loaded; for the CPU tier: used. */
  active: number[];
  /** Kept by a policy for turns to come. */
  pinned: number[];
  free: number[];
  total: number;
  /** Most blocks in use at one of the rows, per point. */
  peak: number[];
}

export type Pool = "vram" | "dram";

/** The occupancy of a pool in `range`, or null if the trace does not record it. `points`: about how many. */
export function occupancy(
  store: TraceStore,
  levels: LevelsOfDetail | null,
  range: Range,
  pool: Pool,
  points: number,
): Occupancy | null {
  const total = poolSize(store, range, pool);
  if (total === null) return null;
  const level = levels?.pick((range.last - range.first + 1) / Math.max(points, 1)) ?? null;
  const found = level ? fromLevel(level, range, pool, total) : fromRows(store, range, pool, total);
  return found.rows.length > 0 ? found : null;
}

/** The largest size named in the range: it does not change within a run. */
function poolSize(store: TraceStore, range: Range, pool: Pool): number | null {
  const column = pool === "vram" ? store.steps.totalBlocks : store.steps.cpuTotalBlocks;
  let most = 0;
  for (let row = range.first; row <= range.last; row++) most = Math.max(most, column[row]);
  return most > 0 ? most : null;
}

function empty(total: number): Occupancy {
  return { rows: [], active: [], pinned: [], free: [], total, peak: [] };
}

function push(into: Occupancy, row: number, used: number, pinned: number, peak: number): void {
  into.rows.push(row);
  // Pins of several jobs count a block that they share several times.
  const held = Math.min(pinned, used);
  into.pinned.push(held);
  into.active.push(used - held);
  into.free.push(Math.max(into.total - used, 0));
  into.peak.push(peak);
}

function fromRows(store: TraceStore, range: Range, pool: Pool, total: number): Occupancy {
  const found = empty(total);
  const free = pool === "vram" ? store.steps.freeBlocks : store.steps.cpuFreeBlocks;
  for (let row = range.first; row <= range.last; row++) {
    const value = known(free, row);
    const pinned = pool === "vram" && !Number.isNaN(value) ? known(store.steps.pinnedBlocks, row) || 0 : 0;
    push(found, row, total - value, pinned, total - value);
  }
  return found;
}

function known(column: Whole, row: number): number {
  const value = column[row];
  return value === MISSING ? Number.NaN : value;
}

function fromLevel(level: Level, range: Range, pool: Pool, total: number): Occupancy {
  const found = empty(total);
  const name = pool === "vram" ? "usedBlocks" : "cpuUsedBlocks";
  const last = Math.min(level.bins - 1, range.last >> level.k);
  for (let bin = range.first >> level.k; bin <= last; bin++) {
    const used = meanOf(level, name, bin);
    const pinned = pool === "vram" && !Number.isNaN(used) ? meanOf(level, "pinnedBlocks", bin) || 0 : 0;
    push(found, Math.max(bin << level.k, range.first), used, pinned, level.max[name][bin]);
  }
  if (found.rows.length > 1) found.rows[found.rows.length - 1] = range.last;
  return found;
}

function meanOf(level: Level, name: "usedBlocks" | "cpuUsedBlocks" | "pinnedBlocks", bin: number): number {
  const rows = level.known[name][bin];
  return rows > 0 ? level.sum[name][bin] / rows : Number.NaN;
}

/** The columns on top of each other: each the sum of itself and those below; gaps stay gaps. */
export function stacked(found: Occupancy): (number | null)[][] {
  const sums = [found.active, found.pinned, found.free].reduce<number[][]>((below, layer) => {
    const under = below.at(-1);
    below.push(layer.map((value, index) => value + (under?.[index] ?? 0)));
    return below;
  }, []);
  return [...sums, found.peak].map((values) => values.map((value) => (Number.isNaN(value) ? null : value)));
}
