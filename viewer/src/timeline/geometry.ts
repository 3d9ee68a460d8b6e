/** Where rows are on the screen: equal heights, but for one opened row that is higher. */

/** Rows at least so high are written out; where they would be lower, tracks along the clock are drawn instead. */
export const TEXT_HEIGHT = 18;
/** How high a row is at first: room for every badge. */
export const FULL_HEIGHT = 90;
export const DEFAULT_WINDOW = 500;

export interface Geometry {
  /** Place at the upper edge, whole or not. */
  top: number;
  rowHeight: number;
  height: number;
  count: number;
  /** The opened place and the pixels it has beyond its row; null if none is open. */
  open: { place: number; extra: number } | null;
}

/** Upper edge of a place, in pixels. */
export function yOf(geometry: Geometry, place: number): number {
  const { top, rowHeight, open } = geometry;
  return (place - top) * rowHeight + (open && place > open.place ? open.extra : 0);
}

/** The place at a pixel, -1 if there is none. */
export function placeAt(geometry: Geometry, y: number): number {
  const { top, rowHeight, open, count } = geometry;
  let at = y;
  if (open) {
    const openTop = (open.place - top) * rowHeight;
    const openBottom = openTop + rowHeight + open.extra;
    if (y >= openTop && y < openBottom) return open.place;
    if (y >= openBottom) at -= open.extra;
  }
  const place = Math.floor(top + at / rowHeight);
  return place >= 0 && place < count ? place : -1;
}

/** Whole places in view. */
export function visible(geometry: Geometry): { first: number; last: number } {
  const { top, rowHeight, height, count } = geometry;
  return { first: Math.max(0, Math.floor(top)), last: Math.min(count - 1, Math.floor(top + height / rowHeight)) };
}

/** A column of the timeline. */
export interface Column {
  name: "step" | "ts" | "batch" | "running" | "waiting";
  x: number;
  width: number;
}

/** Below so many pixels the times are left out and the queues are narrow. */
const NARROW = 620;

/** The five columns of a width. */
export function columnsOf(width: number): Column[] {
  // A phone has room for what was held and who waits, and little else.
  const narrow = width < NARROW;
  const step = narrow ? 46 : 70;
  const ts = narrow ? 0 : 92;
  const batch = narrow ? Math.round(0.46 * width) : Math.round(Math.min(Math.max(0.28 * width, 230), 372));
  const rest = Math.max(width - step - ts - batch, 100);
  const running = Math.round(0.54 * rest);
  const widths = [step, ts, batch, running, rest - running];
  const names = ["step", "ts", "batch", "running", "waiting"] as const;
  let x = 0;
  return names.map((name, at) => {
    const column = { name, x, width: widths[at] };
    x += widths[at];
    return column;
  });
}
