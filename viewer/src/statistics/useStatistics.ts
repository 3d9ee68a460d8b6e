import { useEffect, useState } from "preact/hooks";
import { levelsOfDetail, statistics } from "../data";
import type { Range } from "../data/model/columns";
import type { LevelsOfDetail } from "../data/model/levels";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";

/** While a selection is dragged its statistics are not wanted yet. */
const SETTLE_MS = 120;

export interface Computed<T> {
  /** The last that was computed; perhaps still of the range before. */
  value: T | null;
  busy: boolean;
  failure: string | null;
}

export interface Added {
  /** Of the store when it was read. */
  version: number;
  found: Statistics;
}

/** Statistics of a range, in slices, anew when range or data change; the old ones stay until then. */
export function useStatistics(store: TraceStore, revision: number, { first, last }: Range): Computed<Added> {
  return useComputed<Added>(
    async (signal) => {
      const { version } = store;
      return { version, found: await statistics(store, { first, last }, signal) };
    },
    [store, revision, first, last],
    SETTLE_MS,
  );
}

/** Levels of detail for the charts; null until they are there. */
export function useLevels(store: TraceStore, revision: number): LevelsOfDetail | null {
  return useComputed<LevelsOfDetail>(() => levelsOfDetail(store), [store, revision], 0).value;
}

/** The result of `work`, started anew whenever one of `inputs` changes; a superseded one is aborted. */
export function useComputed<T>(
  work: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[],
  settleMs: number,
): Computed<T> {
  const [state, setState] = useState<Computed<T>>({ value: null, busy: true, failure: null });
  useEffect(() => {
    const stop = new AbortController();
    setState((old) => ({ ...old, busy: true }));
    const start = async () => {
      try {
        const value = await work(stop.signal);
        if (!stop.signal.aborted) setState({ value, busy: false, failure: null });
      } catch (error) {
        if (!stop.signal.aborted) setState((old) => ({ ...old, busy: false, failure: String(error) }));
      }
    };
    const timer = setTimeout(start, state.value === null ? 0 : settleMs);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [...inputs]);
  return state;
}
