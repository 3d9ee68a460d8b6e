import { useEffect, useState } from "preact/hooks";
import { advise, type Finding, type Whole } from "../advice/rules";
import { symptomsOf } from "../advice/symptoms";
import { levelsOfDetail, statistics } from "../data";
import type { Range } from "../data/model/columns";
import type { LevelsOfDetail } from "../data/model/levels";
import type { Bounds } from "../data/model/slo";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { bounds } from "../state/bounds";

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
  advice: Finding[];
}

/** Statistics of a range and what they advise, in slices, anew when range, data or bounds change; the old ones stay until then. */
export function useStatistics(store: TraceStore, revision: number, range: Range): Computed<Added> {
  const { first, last } = range;
  return useComputed<Added>(
    (signal) => added(store, { first, last }, signal),
    [store, revision, first, last, bounds.value],
    SETTLE_MS,
  );
}

export async function added(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Added> {
  const { version } = store;
  const found = await statistics(store, range, signal);
  const given = bounds.value;
  const symptoms = await symptomsOf(store, found, given, signal);
  const isWhole = range.first === 0 && range.last === store.rows - 1;
  const advice = advise(symptoms, isWhole ? null : await wholeOf(store, given));
  return { version, found, advice };
}

/** Of its rows: a trace that is followed has to grow by so much until what is known of the whole is of no use. */
const GROWN = 1.1;
const wholes = new WeakMap<TraceStore, { version: number; rows: number; given: Bounds; found: Promise<Whole> }>();

/** What a part of the run is seen against; kept. */
function wholeOf(store: TraceStore, given: Bounds): Promise<Whole> {
  const { version, rows } = store;
  const known = wholes.get(store);
  if (
    known?.given === given &&
    (known.version === version || (store.stage === "following" && rows < GROWN * known.rows))
  ) {
    return known.found;
  }
  const compute = async (): Promise<Whole> => {
    const symptoms = await symptomsOf(store, await statistics(store, { first: 0, last: rows - 1 }), given);
    return { symptoms, advice: advise(symptoms) };
  };
  const found = compute();
  wholes.set(store, { version, rows, given, found });
  return found;
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
