/** Levels of detail: per 2^k rows the least, the largest, the sum and the reason that took most time, or most rows. */

import { secondsOf } from "./lives";
import { MISSING } from "./model/columns";
import type { Level, LevelsOfDetail, SeriesName, Weighing } from "./model/levels";
import { NO_REASON } from "./model/reasons";
import type { TraceStore } from "./model/trace";
import { breathe, inSlices } from "./slices";

/** The finest level that is stored; finer ones are quickly read from the columns. */
const FINEST = 3;
export const SERIES: readonly SeriesName[] = [
  "freeBlocks",
  "usedBlocks",
  "pinnedBlocks",
  "cpuUsedBlocks",
  "numRunning",
  "numWaiting",
  "tokenSum",
  "unadmitted",
];

/** Value of a series at a row; NaN where it is not known. */
export function seriesAt({ steps }: TraceStore, name: SeriesName, row: number): number {
  switch (name) {
    case "usedBlocks":
      return lessThan(steps.totalBlocks[row], steps.freeBlocks[row]);
    case "cpuUsedBlocks":
      return lessThan(steps.cpuTotalBlocks[row], steps.cpuFreeBlocks[row]);
    default: {
      const value = steps[name][row];
      return value === MISSING ? Number.NaN : value;
    }
  }
}

function lessThan(total: number, free: number): number {
  return total === MISSING || free === MISSING ? Number.NaN : total - free;
}

/** A level while it is made: with the counts of reasons, which the next one needs. */
interface Making {
  level: Level;
  /** Weight of each reason in each bin. */
  counts: Float64Array;
}

export async function levelsOfDetail(store: TraceStore, by: Weighing = "steps"): Promise<LevelsOfDetail> {
  const { version } = store;
  const levels: (Level | null)[] = Array.from({ length: FINEST }, () => null);
  let making: Making | null = store.rows > 0 ? await finest(store, by) : null;
  while (making) {
    levels.push(making.level);
    if (making.level.bins <= 1) break;
    making = coarser(store, making);
    await breathe();
  }
  const pick = (rowsPerPixel: number): Level | null => {
    const k = Math.floor(Math.log2(Math.max(rowsPerPixel, 1)));
    return levels[Math.min(k, levels.length - 1)] ?? null;
  };
  return { version, by, levels, pick };
}

function emptyLevel(k: number, bins: number): Level {
  const per = <T>(make: () => T) => Object.fromEntries(SERIES.map((name) => [name, make()])) as Record<SeriesName, T>;
  return {
    k,
    bins,
    min: per(() => new Float32Array(bins).fill(Number.NaN)),
    max: per(() => new Float32Array(bins).fill(Number.NaN)),
    sum: per(() => new Float64Array(bins).fill(Number.NaN)),
    known: per(() => new Uint32Array(bins)),
    dominant: new Uint8Array(bins),
    blocked: new Uint8Array(bins),
    blockedShare: new Float32Array(bins),
  };
}

async function finest(store: TraceStore, by: Weighing): Promise<Making> {
  const bins = Math.ceil(store.rows / 2 ** FINEST);
  const level = emptyLevel(FINEST, bins);
  const reasons = store.shown.length;
  const counts = new Float64Array(bins * reasons);
  await inSlices(0, store.rows - 1, (row) => {
    const bin = row >> FINEST;
    counts[bin * reasons + store.steps.shown[row]] += by === "time" ? secondsOf(store, row) : 1;
    for (const name of SERIES) {
      const value = seriesAt(store, name, row);
      if (!Number.isNaN(value)) add(level, name, bin, value, value, value, 1);
    }
  });
  settle(store, level, counts);
  return { level, counts };
}

function coarser(store: TraceStore, finer: Making): Making {
  const bins = Math.ceil(finer.level.bins / 2);
  const level = emptyLevel(finer.level.k + 1, bins);
  const reasons = store.shown.length;
  const counts = new Float64Array(bins * reasons);
  for (let bin = 0; bin < finer.level.bins; bin++) {
    const into = bin >> 1;
    for (let reason = 0; reason < reasons; reason++) {
      counts[into * reasons + reason] += finer.counts[bin * reasons + reason];
    }
    for (const name of SERIES) {
      const { min, max, sum, known } = finer.level;
      if (known[name][bin]) add(level, name, into, min[name][bin], max[name][bin], sum[name][bin], known[name][bin]);
    }
  }
  settle(store, level, counts);
  return { level, counts };
}

function add(
  level: Level,
  name: SeriesName,
  bin: number,
  least: number,
  most: number,
  total: number,
  rows: number,
): void {
  const before = level.known[name][bin];
  level.known[name][bin] = before + rows;
  level.min[name][bin] = before ? Math.min(level.min[name][bin], least) : least;
  level.max[name][bin] = before ? Math.max(level.max[name][bin], most) : most;
  level.sum[name][bin] = before ? level.sum[name][bin] + total : total;
}

/** Choose the reasons that stand for each bin. */
function settle(store: TraceStore, level: Level, counts: Float64Array): void {
  const { shown } = store;
  for (let bin = 0; bin < level.bins; bin++) {
    let best = 0;
    let most = 0;
    let worst = NO_REASON;
    let worstRows = 0;
    let blockedRows = 0;
    let rows = 0;
    for (let reason = 0; reason < shown.length; reason++) {
      const count = counts[bin * shown.length + reason];
      if (!(count > 0)) continue;
      rows += count;
      if (count > most || (count === most && shown[reason].blocked)) [best, most] = [reason, count];
      if (!shown[reason].blocked) continue;
      blockedRows += count;
      if (count > worstRows) [worst, worstRows] = [reason, count];
    }
    level.dominant[bin] = best;
    level.blocked[bin] = worst;
    level.blockedShare[bin] = rows ? blockedRows / rows : 0;
  }
}
