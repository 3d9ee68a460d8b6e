/** Levels of detail, for drawing a million steps. */

export type SeriesName =
  | "freeBlocks"
  | "usedBlocks"
  | "pinnedBlocks"
  | "cpuUsedBlocks"
  | "numRunning"
  | "numWaiting"
  | "tokenSum"
  | "unadmitted";

/** What a step counts for where one reason stands for many: its seconds, or one. */
export type Weighing = "time" | "steps";

/** One level: bin b covers rows b * 2^k .. (b + 1) * 2^k - 1. Bins in which nothing is known hold NaN. */
export interface Level {
  k: number;
  bins: number;
  min: Record<SeriesName, Float32Array>;
  max: Record<SeriesName, Float32Array>;
  sum: Record<SeriesName, Float64Array>;
  /** Rows with a value, per bin. */
  known: Record<SeriesName, Uint32Array>;
  /** Index into `TraceStore.shown` that weighs most in the bin; ties go to the blocked one. */
  dominant: Uint8Array;
  /** Index of the blocked reason that weighs most, or NO_REASON: so that rare trouble can be marked. */
  blocked: Uint8Array;
  /** Share of what is blocked, by weight, 0 .. 1. */
  blockedShare: Float32Array;
}

export interface LevelsOfDetail {
  /** `version` of the store when they were built. */
  version: number;
  by: Weighing;
  /** levels[k]; level 0 is not stored (read the columns). */
  levels: (Level | null)[];
  /** The coarsest level whose bins are at most `rowsPerPixel` rows wide; null: use the rows themselves. */
  pick(rowsPerPixel: number): Level | null;
}
