/** Where the points of a plot lie: its field between the axes, in CSS pixels. */

export type Values = readonly (number | null)[];

/** Places from left to right, rising, and for each of them the values; null where nothing is known. */
export type PlotData = readonly [readonly number[], ...Values[]];

export interface Frame {
  left: number;
  right: number;
  top: number;
  bottom: number;
  /** First and last place. */
  from: number;
  to: number;
  /** Value at the top; 0 lies at the bottom. */
  highest: number;
}

const MARGIN = { left: 62, right: 16, top: 10, bottom: 26 };

/** The field in a box; values go up to the largest one, at least to `atLeast`. */
export function frameOf([places, ...columns]: PlotData, width: number, height: number, atLeast = 1): Frame {
  const first = places[0] ?? 0;
  const last = places.at(-1) ?? 0;
  const alone = first === last ? 0.5 : 0;
  let highest = atLeast;
  for (const column of columns) for (const value of column) if (value !== null) highest = Math.max(highest, value);
  return {
    left: MARGIN.left,
    right: Math.max(width - MARGIN.right, MARGIN.left + 1),
    top: MARGIN.top,
    bottom: height - MARGIN.bottom,
    from: first - alone,
    to: last + alone,
    highest,
  };
}

export function xOf({ left, right, from, to }: Frame, place: number): number {
  return left + ((place - from) / (to - from)) * (right - left);
}

export function yOf({ top, bottom, highest }: Frame, value: number): number {
  return bottom - (value / highest) * (bottom - top);
}

/** The inverse of `xOf`; beside the field, the nearer end. */
export function placeAt({ left, right, from, to }: Frame, x: number): number {
  const share = Math.min(Math.max((x - left) / (right - left), 0), 1);
  return from + share * (to - from);
}

/** Index of the place that is nearest; -1 if there is none. */
export function nearest(places: readonly number[], wanted: number): number {
  let low = 0;
  let high = places.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (wanted - places[middle] > places[middle + 1] - wanted) low = middle + 1;
    else high = middle;
  }
  return high;
}
