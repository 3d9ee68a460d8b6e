/** Places of the timeline: one per row of the trace or, under a filter, one per row that it lets through. */

import type { Row } from "../data/model/columns";
import { lowerBound } from "../state/moves";

export interface Axis {
  /** Number of places. */
  count: number;
  /** Row at a whole place. */
  rowAt(place: number): Row;
  /** Where a row stands, whole or not; rows that are left out stand between their neighbours. */
  toPlace(row: number): number;
  /** The other way round. */
  toRow(place: number): number;
}

export function axisOf(rows: number, kept: Int32Array | null): Axis {
  if (!kept) return { count: rows, rowAt: Math.floor, toPlace: Number, toRow: Number };
  const count = kept.length;
  /** Place `count` is the end of the trace, so that the last row has a height. */
  const at = (place: number) => (place < count ? kept[place] : rows);
  return {
    count,
    rowAt: (place) => kept[Math.floor(place)],
    toPlace(row) {
      if (count === 0) return 0;
      const above = lowerBound(kept, Math.floor(row) + 1);
      if (above === 0) return 0;
      const [from, to] = [at(above - 1), at(above)];
      return above - 1 + Math.min((row - from) / Math.max(to - from, 1), 1);
    },
    toRow(place) {
      if (count === 0) return 0;
      const below = Math.min(Math.max(Math.floor(place), 0), count - 1);
      const [from, to] = [at(below), at(below + 1)];
      return from + (place - below) * Math.max(to - from, 1);
    },
  };
}
