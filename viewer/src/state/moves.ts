/** What the user does to the view: one function per move, used by keys, mouse and buttons alike. */

import type { Range, RequestIndex, Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import type { Tab } from "./hash";
import { announce, focusRequest, focusRow, matches, selection, tab, trace, type View, view } from "./store";

/** Fewer rows than this are never in view, or the last zoom step would show a part of one. */
const FEWEST_ROWS = 2;

/** How far the view may go beyond the last row: the opened row of the timeline pushes the others down. In rows. */
let slack = 0;

export function setSlack(rows: number): void {
  slack = rows;
}

/** Rows that fit the window when they are high enough to be read: a shorter trace leaves room below. */
let room = 0;

export function setRoom(rows: number): void {
  room = rows;
}

/** The view shows the whole run, not just because the run is short. */
export function showsWhole({ first, last }: View, rows: number): boolean {
  return first <= 0 && last >= rows && last - first > room;
}

/** A view of the same size as requested, moved and cut so that it lies in the trace. */
export function clampView(first: number, last: number, rows: number, beyond = 0, least = 0): View {
  const size = Math.max(Math.min(last - first, Math.max(rows, least)), Math.min(FEWEST_ROWS, rows));
  const start = Math.min(Math.max(first, 0), Math.max(rows - size + beyond, 0));
  return { first: start, last: start + size };
}

export function showRange(first: number, last: number): void {
  const store = trace.value;
  if (store) view.value = clampView(first, last, store.rows, slack, room);
}

/** The last rows of the trace, as many as are in view; of a run that is in view as a whole, still the whole. */
export function showEnd(whole = false): void {
  const store = trace.value;
  if (!store) return;
  const { first, last } = view.value;
  if (whole) showRange(0, store.rows);
  else if (last > first) showRange(store.rows, store.rows + last - first);
}

/** By a share of what is in view: 0.5 is half a screen. */
export function pan(share: number): void {
  const { first, last } = view.value;
  const by = share * (last - first);
  showRange(first + by, last + by);
}

/** Factor below 1 shows fewer steps; `anchor` is the row that stays where it is. */
export function zoom(factor: number, anchor?: number): void {
  const { first, last } = view.value;
  const focus = focusRow.value;
  const middle = (first + last) / 2;
  const about = anchor ?? (focus >= first && focus <= last ? focus : middle);
  const size = Math.max((last - first) * factor, FEWEST_ROWS);
  const share = last > first ? (about - first) / (last - first) : 0;
  showRange(about - share * size, about + (1 - share) * size);
}

/** The selection, else the whole run. */
export function fit(): void {
  const store = trace.value;
  if (!store) return;
  const chosen = selection.value;
  if (chosen) showRange(chosen.first, chosen.last + 1);
  else showRange(0, store.rows);
}

/** Look at a row: the side panel shows it, and the view follows if it is out of sight. The request stays, or is another. */
export function focus(row: Row, request: RequestIndex = focusRequest.peek()): void {
  const store = trace.value;
  if (!store || store.rows === 0) return;
  focusRow.value = Math.min(Math.max(row, 0), store.rows - 1);
  focusRequest.value = request;
  reveal(focusRow.value);
}

/** Look at the first of some rows, and select them if they are several: the view shows them, statistics are of them. */
export function focusRange(first: Row, last: Row): void {
  if (last > first) {
    selection.value = { first, last };
    showRange(first, last + 1);
  }
  focus(first);
}

/** Bring a row into view, a third from the top, if it is not there. */
export function reveal(row: Row): void {
  const { first, last } = view.value;
  const margin = Math.min(1, (last - first) / 4);
  if (row >= first && row + 1 + margin <= last) return;
  const size = last - first;
  showRange(row - size / 3, row - size / 3 + size);
}

/** The next row of those that the filter lets through, or the one before. */
export function stepBy(direction: 1 | -1): void {
  const store = trace.value;
  if (!store) return;
  const from = focusRow.value < 0 ? Math.ceil(view.value.first) - direction : focusRow.value;
  const rows = matches.value.rows;
  if (!rows) {
    focus(from + direction);
    return;
  }
  const at = lowerBound(rows, from);
  const next = direction === 1 ? (rows[at] === from ? at + 1 : at) : at - 1;
  if (next >= 0 && next < rows.length) focus(rows[next]);
  else announce(direction === 1 ? "No later step passes the filter" : "No earlier step passes the filter");
}

/**
 * Select the steps from the focused one to the next or the one before, or to a screen away. The focus goes along: at an
 * end of a selection it moves this end.
 */
export function extend(direction: 1 | -1, page = false): void {
  const store = trace.value;
  if (!store || store.rows === 0) return;
  const { first, last } = view.value;
  const from = focusRow.value < 0 ? Math.min(Math.ceil(first), store.rows - 1) : focusRow.value;
  const chosen = selection.value;
  const anchor = chosen?.first === from ? chosen.last : chosen?.last === from ? chosen.first : from;
  const rows = matches.value.rows;
  const inView = rows ? lowerBound(rows, Math.ceil(last)) - lowerBound(rows, Math.floor(first)) : last - first;
  const by = direction * (page ? Math.max(1, Math.round(0.9 * inView)) : 1);
  const to = rows ? keptRow(rows, from, by) : Math.min(Math.max(from + by, 0), store.rows - 1);
  selection.value = { first: Math.min(anchor, to), last: Math.max(anchor, to) };
  focus(to);
}

/** So many rows on among those that pass; the last of them if there are fewer, the row itself if there is none. */
function keptRow(rows: Int32Array, from: Row, by: number): Row {
  const at = lowerBound(rows, from);
  const wanted = by > 0 && rows[at] !== from ? at + by - 1 : at + by;
  return rows[Math.min(Math.max(wanted, 0), rows.length - 1)] ?? from;
}

/** The next row that is shown as the same reason as the focused one (of the blocked ones, if none is focused). */
export function sameReason(direction: 1 | -1): void {
  const store = trace.value;
  if (!store || store.rows === 0) return;
  const from = focusRow.value;
  const found =
    from < 0 ? nextBlocked(store, Math.ceil(view.value.first) - direction, direction) : nextAs(store, from, direction);
  if (found >= 0) {
    focus(found);
    return;
  }
  const name = from < 0 ? "any" : (store.shown[store.steps.shown[from]]?.name ?? "this reason");
  announce(`No ${direction === 1 ? "later" : "earlier"} step with ${name}`);
}

/** The first row of the next stretch of rows that are shown as the focused one is, or of the one before. */
export function sameEpisode(direction: 1 | -1): void {
  const store = trace.value;
  const from = focusRow.value;
  if (!store || from < 0) {
    sameReason(direction);
    return;
  }
  const { shown } = store.steps;
  const wanted = shown[from];
  const edge = direction === 1 ? episodeOf(store, from).last : episodeOf(store, from).first;
  const found = scan(store, edge, direction, (which) => which === wanted);
  const name = store.shown[wanted]?.name ?? "this reason";
  if (found < 0) announce(`No ${direction === 1 ? "later" : "earlier"} episode of ${name}`);
  else focus(direction === 1 ? found : episodeOf(store, found).first);
}

/** The stretch of rows about a row that are all shown as it is. */
export function episodeOf(store: TraceStore, row: Row): Range {
  const { shown } = store.steps;
  let [first, last] = [row, row];
  while (first > 0 && shown[first - 1] === shown[row]) first -= 1;
  while (last + 1 < store.rows && shown[last + 1] === shown[row]) last += 1;
  return { first, last };
}

function nextAs(store: TraceStore, from: Row, direction: 1 | -1): Row {
  const wanted = store.steps.shown[from];
  return scan(store, from, direction, (shown) => shown === wanted);
}

function nextBlocked(store: TraceStore, from: Row, direction: 1 | -1): Row {
  const blocked = store.shown.map((reason) => reason.blocked);
  return scan(store, from, direction, (shown) => blocked[shown]);
}

function scan(store: TraceStore, from: Row, direction: 1 | -1, wanted: (shown: number) => boolean): Row {
  const { shown } = store.steps;
  const passes = matches.value.rows;
  for (let row = from + direction; row >= 0 && row < store.rows; row += direction) {
    if (wanted(shown[row]) && (!passes || passes[lowerBound(passes, row)] === row)) return row;
  }
  return -1;
}

/** The next row shown as `shown[index]`: of one that is not looked at yet, the first from `begin` on. Clicks on a legend. */
export function goToReason(index: number, begin: Row = -1): void {
  const store = trace.value;
  if (!store) return;
  const from = focusRow.value >= 0 && store.steps.shown[focusRow.value] === index ? focusRow.value : begin - 1;
  let found = scan(store, from, 1, (shown) => shown === index);
  if (found < 0) found = scan(store, -1, 1, (shown) => shown === index);
  if (found >= 0) focus(found);
}

export function showTab(next: Tab): void {
  tab.value = next;
}

/** The step that is looked at goes with it, if it is one of it: nothing else leads to it. */
export function clearSelection(): void {
  const chosen = selection.value;
  const row = focusRow.value;
  if (chosen && row >= chosen.first && row <= chosen.last && focusRequest.value < 0) focusRow.value = -1;
  selection.value = null;
}

/** Close one thing: the request, then the step, then the selection. False if nothing was open. */
export function back(): boolean {
  if (focusRequest.value >= 0) focusRequest.value = -1;
  else if (focusRow.value >= 0) focusRow.value = -1;
  else if (selection.value) selection.value = null;
  else return false;
  return true;
}

/** Position of the first element that is not below `value`. */
export function lowerBound(sorted: Int32Array, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
