/** The other engines of the run, along the clock of the one that is shown. */

import { clockOf } from "../data/clock";
import type { Pressure } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { pressure as pressureOf } from "../data/pressure";
import { type Engine, engines } from "../state/engines";
import { useComputed } from "../statistics/useStatistics";

const SLICES = 300;
const SETTLE_MS = 60;

interface Span {
  begin: number;
  end: number;
}

export type DrawnEngine = Engine & { store: TraceStore; pressure: Pressure | null };

/** `whole`: all of the shown engine is in view, and so all of the others is. */
export function useEngines(shown: Span, whole: boolean): { window: Span; drawn: DrawnEngine[] } {
  const read = engines.value.filter((engine): engine is Engine & { store: TraceStore } => engine.store !== null);
  const spans = whole
    ? read.map(({ store }) => ({ begin: clockOf(store).at(0), end: clockOf(store).at(store.rows) }))
    : [];
  const begin = Math.min(shown.begin, ...spans.map((span) => span.begin));
  const end = Math.max(shown.end, ...spans.map((span) => span.end));
  const pictures = useComputed<(Pressure | null)[]>(
    async (signal) => {
      const found: (Pressure | null)[] = [];
      for (const { store } of read) {
        const { rowAt } = clockOf(store);
        found.push(await pressureOf(store, { first: rowAt(begin), last: rowAt(end) }, SLICES, signal));
      }
      return found;
    },
    [engines.value, begin, end],
    SETTLE_MS,
  ).value;
  return {
    window: { begin, end },
    drawn: read.map((engine, at) => ({ ...engine, pressure: pictures?.[at] ?? null })),
  };
}
