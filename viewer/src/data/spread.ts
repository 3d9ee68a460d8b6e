/** Mean and percentiles, as src/tokenyard/explain/figures.py takes them: linear between neighbours. */

import type { Spread } from "./model/statistics";

/** The largest of the values that are known, and no less than 0; of any number of them. */
export function largest(values: ArrayLike<number>): number {
  let most = 0;
  for (let at = 0; at < values.length; at++)
    if (values[at] > most && values[at] < Number.POSITIVE_INFINITY) most = values[at];
  return most;
}

/**
 * Of the values that are known. `floors` are values of which is known only what they are at least, infinite ones will never
 * be: a statistic that they can still raise is a lower bound. Each value stands for `counts` alike.
 */
export function knownSpread(
  values: ArrayLike<number>,
  floors: ArrayLike<number> = [],
  counts?: ArrayLike<number>,
): Spread | null {
  const entries: [number, number][] = [];
  for (let at = 0; at < values.length; at++)
    if (!Number.isNaN(values[at]) && counts?.[at] !== 0) entries.push([values[at], counts?.[at] ?? 1]);
  const open = Array.from(floors).filter((floor) => !Number.isNaN(floor));
  const least = open.filter(Number.isFinite);
  const known = [...entries, ...least.map((floor): [number, number] => [floor, 1])];
  if (known.length === 0) return null;
  const [now, later] = [ranked(known, open.length - least.length), ranked(entries, open.length)];
  const [sum, total] = known.reduce(([sum, all], [value, count]) => [sum + value * count, all + count], [0, 0]);
  const most = known[known.length - 1][0];
  const spread: Spread = { mean: sum / total, p50: 0, p90: 0, p95: 0, p99: 0, max: 0 };
  const atLeast: (keyof typeof PERCENTS | "mean")[] = open.length > 0 ? ["mean"] : [];
  for (const name of Object.keys(PERCENTS) as (keyof typeof PERCENTS)[]) {
    const value = now(PERCENTS[name]);
    if (value === Number.POSITIVE_INFINITY || value !== later(PERCENTS[name])) atLeast.push(name);
    spread[name] = Math.min(value, most);
  }
  const unbounded = open.filter((floor) => floor === 0).length;
  return atLeast.length > 0 ? { ...spread, atLeast, ...(unbounded && { unbounded }) } : spread;
}

const PERCENTS = { p50: 50, p90: 90, p95: 95, p99: 99, max: 100 };

/** Puts values in order, each so many times, with some behind them that are above all bounds; gives their percentiles. */
function ranked(entries: [number, number][], above: number): (percent: number) => number {
  entries.sort((a, b) => a[0] - b[0]);
  let total = 0;
  const ends = Float64Array.from(entries, ([, count]) => (total += count));
  total += above;
  const nth = (rank: number) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] > rank) high = middle;
      else low = middle + 1;
    }
    return entries[low]?.[0] ?? Number.POSITIVE_INFINITY;
  };
  return (percent) => {
    const place = ((total - 1) * percent) / 100;
    const low = nth(Math.floor(place));
    const high = nth(Math.ceil(place));
    return high === low || high === Number.POSITIVE_INFINITY ? high : low + (high - low) * (place % 1);
  };
}

/** Counts numbers of which many are alike. */
export class Counter {
  private readonly counts = new Map<number, number>();
  private weighted = 0;
  private weights = 0;

  /** Mean by weight: over time, if that is the seconds for which each value held. */
  get mean(): number | null {
    return this.weights > 0 ? this.weighted / this.weights : null;
  }

  add(value: number, weight = 0): void {
    this.weighted += weight * value;
    this.weights += weight;
    this.counts.set(value, (this.counts.get(value) ?? 0) + 1);
  }

  spread(): Spread | null {
    return knownSpread([...this.counts.keys()], [], [...this.counts.values()]);
  }
}
