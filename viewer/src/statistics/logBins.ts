/** Bins of a histogram whose widths grow: 1, 2, 5, 10 and so on, from the least to the largest value. */

export interface LogBins {
  /** Edges, one more than there are bins. */
  edges: number[];
  counts: number[];
}

/** Null if there is nothing to count. What is 0 or less is in the first bin; NaN is in none. */
export function logBins(values: readonly number[]): LogBins | null {
  let least = Number.POSITIVE_INFINITY;
  let most = 0;
  for (const value of values) {
    if (value > 0 && value < least) least = value;
    if (value > most) most = value;
  }
  if (most === 0) return null;
  const edges = [edgeBelow(least)];
  while (edges[edges.length - 1] < most || edges.length < 2) edges.push(next(edges[edges.length - 1]));
  const counts = new Array<number>(edges.length - 1).fill(0);
  for (const value of values) {
    if (Number.isNaN(value)) continue;
    let bin = 0;
    while (bin < counts.length - 1 && value >= edges[bin + 1]) bin += 1;
    counts[bin] += 1;
  }
  return { edges, counts };
}

/** Where a value stands on the scale, 0 .. 1: bins are equally wide on it. */
export function placeOn({ edges }: LogBins, value: number): number {
  const bins = edges.length - 1;
  for (let bin = 0; bin < bins; bin++) {
    if (value > edges[bin + 1]) continue;
    const share =
      (Math.log(Math.max(value, edges[bin])) - Math.log(edges[bin])) / Math.log(edges[bin + 1] / edges[bin]);
    return (bin + share) / bins;
  }
  return 1;
}

function edgeBelow(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return power * (value >= 5 * power ? 5 : value >= 2 * power ? 2 : 1);
}

function next(edge: number): number {
  const power = 10 ** Math.floor(Math.log10(edge) + 1e-9);
  const digit = Math.round(edge / power);
  return digit < 2 ? 2 * power : digit < 5 ? 5 * power : 10 * power;
}
