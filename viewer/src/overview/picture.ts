/** What the tracks show about the place that is in view: computed beyond its edges, so that it can be moved at once. */

import type { Range } from "../data/model/columns";
import type { Pressure, TokenTrack } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { pressure as pressureOf, takersOverTime } from "../data/pressure";
import type { View } from "../state/store";
import { useComputed } from "../statistics/useStatistics";

/** Milliseconds that a view has to stand still; what is there moves along meanwhile. */
const SETTLE_MS = 60;

export interface Picture {
  pressure: Pressure | null;
  takers: TokenTrack[];
}

interface Wish {
  /** Of a view; a zoomed one may get half as many. */
  slices: number;
  /** Requests whose tokens are distinguished. */
  takers?: number;
  /** Without times a row is a second. */
  byRows?: boolean;
}

/** The picture of a view, for a while that of the view before; null until there is one. */
export function usePicture(store: TraceStore, changed: number, view: View, wish: Wish): Picture | null {
  const { first, last, slices } = about(view, store.rows, wish.slices);
  return useComputed<Picture>(
    async (signal) => {
      const pressure = await pressureOf(store, { first, last }, slices, signal, wish.byRows);
      const { takers: most = 0 } = wish;
      const told = pressure !== null && most > 0;
      return { pressure, takers: told ? await takersOverTime(store, { first, last }, pressure, most, signal) : [] };
    },
    [store, changed, first, last, slices],
    SETTLE_MS,
  ).value;
}

/**
 * The rows that are looked at for a view. Zoomed views lie in two neighbouring blocks of a grid that is as wide as they
 * are, or up to twice as wide; these and one at each side are computed, which changes only where a block is left.
 */
export function about(view: View, rows: number, slices: number): Range & { slices: number } {
  const size = 2 ** Math.ceil(Math.log2(Math.max(view.last - view.first, 1)));
  if (view.last - view.first >= rows || size >= rows) {
    return { first: 0, last: rows - 1, slices: Math.min(slices, rows) };
  }
  const block = Math.floor(Math.max(view.first, 0) / size);
  const [from, to] = [Math.max((block - 1) * size, 0), Math.min((block + 3) * size, rows)];
  return {
    first: from,
    last: to - 1,
    slices: Math.max(Math.round(Math.min((slices * (to - from)) / size, to - from)), 1),
  };
}
