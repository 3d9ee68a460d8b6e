/** Where things lie from left to right: by step, or by time. */

import { baseOf, hasTimes, markText, originOf } from "../data/clock";
import { MISSING, type Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { marks, timeMarks } from "./marks";

export type AxisKind = "steps" | "time";

export interface Axis {
  kind: AxisKind;
  width: number;
  /** Place of the beginning of a step, in pixels; steps are wide as long as they took in an axis of time. */
  rowX(row: Row): number;
  /** Place of something that knows its time, and its row in case the trace has no times. */
  place(ts: number, row: Row): number;
  /** The (fractional) row at a place. */
  rowAt(x: number): number;
  ticks: Tick[];
}

export interface Tick {
  x: number;
  text: string;
}

/** Pixels between two marks; where there is little room it is better to have some. */
const SPACE = 110;
const NARROW = 600;
const SPACE_NARROW = 50;

/** An axis over `view` (rows, fractional, the last one excluded), `width` pixels long. */
export function makeAxis(
  store: TraceStore,
  view: { first: number; last: number },
  width: number,
  kind: AxisKind,
): Axis {
  return kind === "time" && hasTimes(store) ? timeAxis(store, view, width) : stepAxis(store, view, width);
}

function stepAxis(store: TraceStore, view: { first: number; last: number }, width: number): Axis {
  const size = Math.max(view.last - view.first, 1e-9);
  const rowX = (row: number) => ((row - view.first) / size) * width;
  return {
    kind: "steps",
    width,
    rowX,
    place: (_, row) => rowX(row),
    rowAt: (x) => view.first + (x / width) * size,
    ticks: marks(view.first, view.last, wanted(width))
      .filter((row) => Number.isInteger(row) && row < store.rows)
      .map((row) => ({ x: rowX(row), text: stepText(store, row) })),
  };
}

/** How many marks an axis has room for. */
export function wanted(width: number, space = SPACE): number {
  return Math.max(width / (width < NARROW ? SPACE_NARROW : space), 1);
}

function stepText(store: TraceStore, row: Row): string {
  const number = store.steps.number[row];
  return number === MISSING ? "?" : String(number);
}

function timeAxis(store: TraceStore, view: { first: number; last: number }, width: number): Axis {
  const from = timeOf(store, view.first);
  const size = Math.max(timeOf(store, view.last) - from, 1e-9);
  const start = originOf(store);
  const place = (ts: number) => ((ts - from) / size) * width;
  return {
    kind: "time",
    width,
    rowX: (row) => place(timeOf(store, row)),
    place: (ts, row) => place(Number.isNaN(ts) ? timeOf(store, row) : ts),
    rowAt: (x) => rowAtTime(store, from + (x / width) * size),
    ticks: timeMarks(from - start, from - start + size, wanted(width), 0, baseOf(store)).map((seconds) => ({
      x: place(start + seconds),
      text: markText(store, start + seconds),
    })),
  };
}

/** When a (fractional) row begins; past the end the last step is taken to be as long as the mean one. */
function timeOf(store: TraceStore, row: number): number {
  const { ts } = store.steps;
  const last = store.rows - 1;
  if (row >= last) {
    const step = last > 0 ? (ts[last] - ts[0]) / last : 1;
    return ts[last] + Math.min(row - last, 1) * step;
  }
  const whole = Math.max(Math.floor(row), 0);
  const share = Math.max(row - whole, 0);
  return ts[whole] + (share > 0 ? share * (ts[whole + 1] - ts[whole]) : 0);
}

/** The inverse of `timeOf`, by halving. */
function rowAtTime(store: TraceStore, wanted: number): number {
  const { ts } = store.steps;
  let low = 0;
  let high = store.rows - 1;
  if (wanted <= ts[0]) return 0;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (ts[middle] <= wanted) low = middle;
    else high = middle - 1;
  }
  const end = timeOf(store, low + 1);
  return low + (end > ts[low] ? Math.min((wanted - ts[low]) / (end - ts[low]), 1) : 0);
}
