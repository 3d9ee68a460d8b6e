/** From the address to the state, and from the state to the address. */

import { requestOf, rowAtTime, rowOfStep } from "../data";
import { onClock, tellsTimeOfDay } from "../data/clock";
import { shortId } from "../data/labels";
import { endOfRow } from "../data/lives";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { EMPTY, type HashState } from "./hash";
import { announce, extra, filterText, focusRequest, focusRow, live, selection, tab, trace, view } from "./store";

/** The part of a state that needs no trace. */
export function applyToPage(state: HashState): void {
  tab.value = state.tab;
  filterText.value = state.filter;
  extra.value = state.extra;
}

/** The part that is of steps and requests of a trace: what the state does not name is not there. */
export function applyToTrace(store: TraceStore, state: HashState): void {
  const row = (step: number) => rowOfStep(store, step);
  if (state.view)
    view.value = { first: Math.max(placeOf(store, state.view[0]), 0), last: placeOf(store, state.view[1]) };
  selection.value = state.selection ? { first: row(state.selection[0]), last: row(state.selection[1]) } : null;
  focusRow.value = state.step === null ? -1 : row(state.step);
  focusRequest.value = state.req === null ? -1 : requestOf(store, state.req);
  if (state.extra["from"] || state.extra["to"]) between(store, state.extra["from"], state.extra["to"]);
  const missed = [
    state.step !== null && store.steps.number[focusRow.value] !== state.step && `step ${count(state.step)}`,
    state.req !== null && focusRequest.value < 0 && `request ${shortId(state.req, 60)}`,
  ].filter(Boolean);
  if (missed.length > 0 && store.stage !== "reading") {
    const instead = focusRow.value >= 0 ? `: this is step ${count(store.steps.number[focusRow.value])}` : "";
    announce(`This trace has no ${missed.join(" and no ")}${instead}`);
  }
}

/** Times of an address, as a monitor's link gives them: seconds or milliseconds since 1970, else seconds since the beginning. */
function between(store: TraceStore, from: string | undefined, to: string | undefined): void {
  const at = (text: string | undefined, open: number) => {
    const value = Number(text ?? Number.NaN);
    return Number.isFinite(value) ? onClock(store, value) : open;
  };
  const [begin, end] = [store.steps.ts[0], endOfRow(store, store.rows - 1)];
  const [first, last] = [at(from, begin), at(to, end)];
  if (first <= end && last >= begin && last >= first) {
    selection.value = { first: rowAtTime(store, first), last: rowAtTime(store, last) };
  } else if (store.stage !== "reading") {
    const why = first > 1e9 && !tellsTimeOfDay(store) ? ": it tells no time of day" : "";
    announce(`The time of the link is not in this trace${why}`);
  }
  const { from: _, to: __, ...rest } = extra.peek();
  extra.value = rest;
}

/** A place between rows, as a step's number and how far in it, to a thousandth: read back it is the same place. */
export function stepAt({ rows, steps: { number } }: TraceStore, place: number): number {
  const row = Math.min(Math.max(Math.floor(place), 0), rows - 1);
  return Math.round((number[row] + place - row) * 1_000) / 1_000;
}

export function placeOf(store: TraceStore, step: number): number {
  const { number } = store.steps;
  const row = rowOfStep(store, Math.floor(step));
  const beyond = row === store.rows - 1 && step > number[row];
  return number[row] === Math.floor(step) || beyond ? row + step - number[row] : row;
}

/** The state as it is. */
export function currentState(origin: { path: string; reqs: boolean } | null, otherPath: string | null): HashState {
  const store = trace.value;
  const { phase, stick } = live.value;
  const page: HashState = {
    ...EMPTY,
    tab: tab.value,
    filter: filterText.value,
    extra: extra.value,
    trace: origin?.path ?? null,
    reqs: origin?.reqs ?? false,
    with: otherPath,
    live: phase === "off" ? "" : stick ? "end" : "paused",
  };
  if (!store || store.rows === 0) return page;
  const { number } = store.steps;
  const step = (row: number) => number[Math.min(Math.max(row, 0), store.rows - 1)];
  const { first, last } = view.value;
  const chosen = selection.value;
  return {
    ...page,
    view: last > first ? [stepAt(store, first), stepAt(store, last)] : null,
    selection: chosen ? [step(chosen.first), step(chosen.last)] : null,
    step: focusRow.value >= 0 ? step(focusRow.value) : null,
    req: focusRequest.value >= 0 ? store.requests.ids[focusRequest.value] : null,
  };
}
