/** What the timeline draws, derived from the state of the page and the size of its canvas. */

import { computed, signal } from "@preact/signals";
import type { Range } from "../data/model/columns";
import { showRange } from "../state/moves";
import { extra, focusRow, matches, revision, trace, view } from "../state/store";
import { type Axis, axisOf } from "./axis";
import { columnsOf, DEFAULT_WINDOW, FULL_HEIGHT, type Geometry, placeAt, TEXT_HEIGHT } from "./geometry";

/** Of the canvas, in CSS pixels. */
export const width = signal(0);
export const height = signal(0);
/** Measured height of the opened row, as an element. */
export const openHeight = signal(0);

export const columns = computed(() => columnsOf(width.value));

export const axis = computed<Axis>(() => {
  revision.value;
  return axisOf(trace.value?.rows ?? 0, matches.value.rows);
});

/** Most slices of the tracks: of more steps in view, neighbours are merged. */
export const windowRows = computed(() => {
  const asked = Number(extra.value["window"] ?? DEFAULT_WINDOW);
  return Number.isInteger(asked) && asked > 0 ? asked : DEFAULT_WINDOW;
});

/** A filter that lets little through does not blow rows up. */
const rowHeight = computed(() => {
  const places = axis.value.toPlace(view.value.last) - axis.value.toPlace(view.value.first);
  const natural = places > 0 ? height.value / places : FULL_HEIGHT;
  return matches.value.rows ? Math.min(natural, FULL_HEIGHT) : natural;
});

/** Place of the focused row if it passes the filter, else -1. */
export const focusPlace = computed(() => {
  const row = focusRow.value;
  if (row < 0) return -1;
  const place = axis.value.toPlace(row);
  return Number.isInteger(place) && place < axis.value.count && axis.value.rowAt(place) === row ? place : -1;
});

export const geometry = computed<Geometry>(() => {
  const place = focusPlace.value;
  const opened = place >= 0 && rowHeight.value >= TEXT_HEIGHT;
  return {
    top: axis.value.toPlace(view.value.first),
    rowHeight: rowHeight.value,
    height: height.value,
    count: axis.value.count,
    open: opened ? { place, extra: Math.max(openHeight.value - rowHeight.value, 0) } : null,
  };
});

/** Rows are high enough to be read; else tracks along the clock are drawn. */
export const readable = computed(() => rowHeight.value >= TEXT_HEIGHT);

/** Show so many places from a place on; fewer than there are only when they fill the window. */
export function showPlaces(first: number, last: number): void {
  const { toRow, count } = axis.peek();
  const size = last - first;
  const start = Math.min(Math.max(first, 0), Math.max(count - size, 0) + slackPlaces());
  const end = start + size;
  showRange(toRow(start), end > count ? toRow(count) + (end - count) : toRow(end));
}

/** First and last row that is drawn, be it in part. */
export function rowsInView(): Range {
  const shown = geometry.peek();
  const last = placeAt(shown, shown.height - 1);
  const { rowAt, count } = axis.peek();
  const first = Math.min(Math.max(Math.floor(shown.top), 0), count - 1);
  return { first: rowAt(first), last: rowAt(last < 0 ? count - 1 : last) };
}

/** Places that the opened row takes from the others. */
export function slackPlaces(): number {
  const { open, rowHeight: high } = geometry.peek();
  return open ? open.extra / high : 0;
}

/** Rows at their full height about the chosen step, if there is one; else from the row that is uppermost now. */
export function showReadable(): void {
  showFull(focusRow.peek() >= 0 ? focusRow.peek() - 1 : undefined);
}

/** Rows at their full height, from a row on: the one that is uppermost now, if none is named. */
export function showFull(from = view.peek().first): void {
  const place = Math.round(axis.peek().toPlace(from));
  showPlaces(place, place + Math.max(height.peek() / FULL_HEIGHT, 1));
}
