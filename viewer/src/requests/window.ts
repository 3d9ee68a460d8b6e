/**
 * The steps that the lanes show. The timeline's view is as many rows as fit a screen; lanes are looked at over the whole
 * run at first, so they keep a window of their own, in the address like everything else.
 */

import type { Range, Row } from "../data/model/columns";
import { clampView } from "../state/moves";
import { extra, selection, setExtra, type View } from "../state/store";

/** In the address; `window` is the timeline's. */
export const ZOOM_KEY = "zoom";
/** In the address too: `table`, `groups`, or lanes. */
export const SHOWN_KEY = "show";
const WINDOW = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/;

/** Rows in the window, the whole trace if none is set. `text` is what the address holds. */
export function windowOf(text: string | undefined, rows: number): View {
  const found = WINDOW.exec(text ?? "");
  if (!found) return { first: 0, last: rows };
  return clampView(Number(found[1]), Number(found[2]), rows);
}

export function windowText({ first, last }: View, rows: number): string {
  if (first <= 0 && last >= rows) return "";
  return `${Number(first.toFixed(2))}-${Number(last.toFixed(2))}`;
}

/** Factor below 1 shows fewer steps; `anchor` is the row that stays where it is. */
export function zoomed(view: View, factor: number, anchor: number, rows: number): View {
  const size = view.last - view.first;
  const wanted = Math.min(Math.max(size * factor, 2), rows);
  const share = size > 0 ? (anchor - view.first) / size : 0.5;
  const first = anchor - share * wanted;
  return clampView(first, first + wanted, rows);
}

function change(rows: number, to: (view: View) => View): void {
  setExtra(ZOOM_KEY, windowText(to(windowOf(extra.peek()[ZOOM_KEY], rows)), rows));
}

export function zoomLanes(rows: number, factor: number, anchor?: number): void {
  change(rows, (view) => zoomed(view, factor, anchor ?? (view.first + view.last) / 2, rows));
}

export function panLanes(rows: number, share: number): void {
  change(rows, ({ first, last }) => {
    const by = share * (last - first);
    return clampView(first + by, last + by, rows);
  });
}

/** Show the steps of a range. */
export function showLanes(rows: number, range: Range): void {
  change(rows, () => clampView(range.first, range.last + 1, rows));
}

/** Lanes are what the Requests tab shows. */
export function lanesShown(): boolean {
  return !["table", "groups"].includes(extra.peek()[SHOWN_KEY] ?? "");
}

/** The rows that the lanes show a part of. */
export function lanesInView(rows: number): Range {
  const { first, last } = windowOf(extra.peek()[ZOOM_KEY], rows);
  return { first: Math.floor(first), last: Math.max(Math.ceil(last) - 1, 0) };
}

/** Move the window to a row that it leaves out; its size stays. */
export function revealInLanes(rows: number, row: Row): void {
  change(rows, (view) => {
    if (row >= view.first && row < view.last) return view;
    const size = view.last - view.first;
    return clampView(row - size / 2, row + size / 2, rows);
  });
}

/** The selection; if that is what is shown already, or there is none, the whole run. */
export function fitLanes(rows: number): void {
  change(rows, (view) => {
    const chosen = selection.peek();
    const wanted = chosen ? clampView(chosen.first, chosen.last + 1, rows) : { first: 0, last: rows };
    const there = Math.abs(view.first - wanted.first) < 0.01 && Math.abs(view.last - wanted.last) < 0.01;
    return there ? { first: 0, last: rows } : wanted;
  });
}

const ZOOM = 1.5;
const PAN = 0.25;

/** What the keys of the timeline do to the lanes while they are open. False if the key is none of them. */
export function laneKey(key: string, rows: number): boolean {
  switch (key.toLowerCase()) {
    case "w":
      zoomLanes(rows, 1 / ZOOM);
      return true;
    case "s":
      zoomLanes(rows, ZOOM);
      return true;
    case "a":
      panLanes(rows, -PAN);
      return true;
    case "d":
      panLanes(rows, PAN);
      return true;
    case "f":
      fitLanes(rows);
      return true;
    default:
      return false;
  }
}
