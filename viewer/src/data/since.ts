/** Since when a reason holds requests back: one answer for the verdict, the strip and the panels. */

import type { Range, Row } from "./model/columns";
import type { Pressure, Stretch } from "./model/pressure";
import type { TraceStore } from "./model/trace";
import { GAP, heldBack, pressure, stretches } from "./pressure";
import { rowAtTime } from "./store";

/** Of the peak: less is no beginning, but chance. */
const BEGUN = 0.01;
/** Slices of the clock. */
export const SLICES = 300;

const kept = new WeakMap<TraceStore, { version: number; found: Map<string, Promise<Pressure | null>> }>();
/** The whole run, the selection, and the one before. */
const KEPT = 3;

/** The pressure of a range in slices: the last ones are kept, for several parts of the page ask for the same. */
export function pressureOfRange(store: TraceStore, { first, last }: Range): Promise<Pressure | null> {
  const { version } = store;
  let known = kept.get(store);
  if (known?.version !== version) {
    known = { version, found: new Map() };
    kept.set(store, known);
  }
  const key = `${first} ${last}`;
  let found = known.found.get(key);
  if (!found) {
    found = pressure(store, { first, last }, SLICES);
    for (const old of [...known.found.keys()].slice(0, 1 - KEPT)) known.found.delete(old);
    known.found.set(key, found);
  }
  return found;
}

/** Of the whole run, whatever is selected: since when it is so does not follow from where one looks. */
export function pressureOfRun(store: TraceStore, range: Range): Promise<Pressure | null> {
  // Of a run that is followed there is a new whole all the time.
  return pressureOfRange(store, store.stage === "following" ? range : { first: 0, last: store.rows - 1 });
}

/**
 * The row since which `shown` held requests back without a pause, up to a stretch or, without one, up to where it was worst;
 * -1 if it never did.
 */
export function sinceOf(store: TraceStore, found: Pressure, shown: number, stretch?: Pick<Stretch, "begin">): Row {
  const since = incidentOf(found, shown, stretch)?.first ?? -1;
  if (since < 0) return -1;
  const from = found.from + since * found.width;
  let row = rowAtTime(store, from);
  const end = from + found.width;
  const holds = () => heldBack(store, row).some(([one, requests]) => one === shown && requests > 0);
  while (row + 1 < store.rows && store.steps.ts[row] < end && !holds()) row += 1;
  return row;
}

/** Where else `shown` held requests back, before or after a pause: then there is more than one answer to since when. */
export function hasPauses(found: Pressure, shown: number): boolean {
  const worst = incidentOf(found, shown);
  const held = found.reasons.find((one) => one.shown === shown)?.held;
  if (!worst || !held) return false;
  const least = BEGUN * held.reduce((one, other) => Math.max(one, other), 0);
  return held.some((requests, slice) => requests > least && (slice < worst.first || slice > worst.last));
}

/** The slices about a stretch in which a reason held requests back without a pause; null if it never did. */
function incidentOf(found: Pressure, shown: number, stretch?: Pick<Stretch, "begin">): Range | null {
  const reason = found.reasons.find((one) => one.shown === shown);
  const at =
    reason && (stretch ? sliceAt(found, stretch.begin) : stretches({ ...found, reasons: [reason] }, 1)[0]?.first);
  if (!reason || at === undefined) return null;
  const { held } = reason;
  const least = BEGUN * held.reduce((one, other) => Math.max(one, other), 0);
  const holds = (slice: number) => held[slice] > least;
  const near = (slice: number, direction: 1 | -1) =>
    Array.from({ length: GAP }, (_, by) => slice + direction * (by + 1)).some(holds);
  let [first, last] = [at, at];
  while (first > 0 && near(first, -1)) first -= 1;
  while (last < found.slices - 1 && near(last, 1)) last += 1;
  while (first < last && !holds(first)) first += 1;
  while (last > first && !holds(last)) last -= 1;
  return { first, last };
}

/** The slice of a moment. */
function sliceAt(found: Pressure, ts: number): number {
  return Math.min(Math.max(Math.floor((ts - found.from) / found.width), 0), found.slices - 1);
}
