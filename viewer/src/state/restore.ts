/** From the address to the state, and from the state to the address. */

import { effect } from "@preact/signals";
import { rowOfStep } from "../data";
import type { TraceStore } from "../data/model/trace";
import { EMPTY, type HashState, readHash, writeHash } from "./hash";
import {
  extra,
  filterText,
  focusRequest,
  focusRow,
  live,
  revision,
  selection,
  tab,
  themeChoice,
  trace,
  view,
} from "./store";

/** Milliseconds of quiet before the address is written: browsers refuse to have it rewritten all the time. */
const QUIET_MS = 250;

/** The part of a state that needs no trace. */
export function applyToPage(state: HashState): void {
  tab.value = state.tab;
  themeChoice.value = state.theme;
  filterText.value = state.filter;
  extra.value = state.extra;
}

/** The part that speaks of steps and requests of a trace. */
export function applyToTrace(store: TraceStore, state: HashState): void {
  const row = (step: number) => rowOfStep(store, step);
  if (state.view) view.value = { first: Math.max(row(state.view[0]), 0), last: row(state.view[1]) + 1 };
  if (state.selection) selection.value = { first: row(state.selection[0]), last: row(state.selection[1]) };
  if (state.step !== null) focusRow.value = row(state.step);
  if (state.req !== null) focusRequest.value = store.requests.ids.indexOf(state.req);
}

/** The state as it is. */
export function currentState(origin: { path: string; reqs: boolean } | null, otherPath: string | null): HashState {
  const store = trace.value;
  const page = {
    ...EMPTY,
    tab: tab.value,
    theme: themeChoice.value,
    filter: filterText.value,
    extra: extra.value,
    trace: origin?.path ?? null,
    reqs: origin?.reqs ?? false,
    with: otherPath,
    live: live.value.phase !== "off",
  };
  if (!store || store.rows === 0) return page;
  const { number } = store.steps;
  const step = (row: number) => number[Math.min(Math.max(row, 0), store.rows - 1)];
  const { first, last } = view.value;
  const chosen = selection.value;
  return {
    ...page,
    view: last > first ? [step(Math.floor(first)), step(Math.ceil(last) - 1)] : null,
    selection: chosen ? [step(chosen.first), step(chosen.last)] : null,
    step: focusRow.value >= 0 ? step(focusRow.value) : null,
    req: focusRequest.value >= 0 ? store.requests.ids[focusRequest.value] : null,
  };
}

/** Keep the address up to date, and obey it when the user changes it. */
export function startAddress(state: () => HashState, obey: (state: HashState) => void): void {
  let timer = 0;
  let written = location.hash.replace(/^#/, "");
  effect(() => {
    revision.value;
    const hash = writeHash(state());
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      if (hash === written) return;
      written = hash;
      history.replaceState(null, "", hash === "" ? location.pathname + location.search : `#${hash}`);
    }, QUIET_MS);
  });
  window.addEventListener("hashchange", () => {
    const hash = location.hash.replace(/^#/, "");
    if (hash === written) return;
    written = hash;
    clearTimeout(timer);
    obey(readHash(hash));
  });
}
