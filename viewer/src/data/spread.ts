/** Mean and percentiles, as src/tokenyard/explain/figures.py takes them: linear between neighbours. */

import type { Spread } from "./model/statistics";

export function spread(values: Float64Array): Spread | null {
  const { length } = values;
  if (length === 0) return null;
  let sum = 0;
  for (let i = 0; i < length; i++) sum += values[i];
  const sorted = values.slice().sort();
  const at = (percent: number) => {
    const place = ((length - 1) * percent) / 100;
    const low = Math.floor(place);
    const high = Math.min(low + 1, length - 1);
    return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
  };
  const [p50, p90, p95, p99] = [at(50), at(90), at(95), at(99)];
  return { mean: sum / length, p50, p90, p95, p99, max: sorted[length - 1], count: length };
}

/** The largest of the values that are known, and no less than 0; of any number of them. */
export function largest(values: ArrayLike<number>): number {
  let most = 0;
  for (let at = 0; at < values.length; at++)
    if (values[at] > most && values[at] < Number.POSITIVE_INFINITY) most = values[at];
  return most;
}

/** Of the values that are known. */
export function knownSpread(values: readonly number[]): Spread | null {
  return spread(Float64Array.from(values).filter((value) => !Number.isNaN(value)));
}

/** Counts small whole numbers, for a spread over any number of rows without sorting them. */
export class Counter {
  private counts = new Float64Array(1024);
  private total = 0;
  private sum = 0;
  private most = 0;
  private weighted = 0;
  private weights = 0;
  /** Numbers too large to count. */
  private large: number[] = [];

  /** Mean by weight: over time, if that is the seconds for which each value held. */
  get mean(): number | null {
    return this.weights > 0 ? this.weighted / this.weights : null;
  }

  add(value: number, weight = 0): void {
    this.weighted += weight * value;
    this.weights += weight;
    this.total += 1;
    this.sum += value;
    if (value > this.most || this.total === 1) this.most = value;
    if (value < 0 || value >= 1 << 20) {
      this.large.push(value);
      return;
    }
    if (value >= this.counts.length) {
      const larger = new Float64Array(Math.max(value + 1, this.counts.length * 2));
      larger.set(this.counts);
      this.counts = larger;
    }
    this.counts[value] += 1;
  }

  spread(): Spread | null {
    if (this.total === 0) return null;
    const places = [50, 90, 95, 99].map((percent) => ((this.total - 1) * percent) / 100);
    const negative = this.large.filter((value) => value < 0).sort((a, b) => a - b);
    const huge = this.large.filter((value) => value >= 0).sort((a, b) => a - b);
    const nth = (rank: number): number => {
      if (rank < negative.length) return negative[rank];
      let left = rank - negative.length;
      for (let value = 0; value < this.counts.length; value++) {
        if (left < this.counts[value]) return value;
        left -= this.counts[value];
      }
      return huge[Math.min(left, huge.length - 1)] ?? this.most;
    };
    const [p50, p90, p95, p99] = places.map((place) => {
      const low = Math.floor(place);
      const [below, above] = [nth(low), nth(Math.min(low + 1, this.total - 1))];
      return below + (above - below) * (place - low);
    });
    return { mean: this.sum / this.total, p50, p90, p95, p99, max: this.most };
  }
}

/** Of values that stand for several each: those of the whole list. Null if none stands for any. */
export function weightedSpread(values: Float64Array, counts: Float64Array): Spread | null {
  const order = Array.from(values.keys()).filter((at) => counts[at] > 0);
  if (order.length === 0) return null;
  order.sort((a, b) => values[a] - values[b]);
  const ends = new Float64Array(order.length);
  let [total, sum] = [0, 0];
  order.forEach((at, place) => {
    total += counts[at];
    sum += counts[at] * values[at];
    ends[place] = total;
  });
  const nth = (rank: number) => {
    let [low, high] = [0, ends.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] > rank) high = middle;
      else low = middle + 1;
    }
    return values[order[low]];
  };
  const at = (percent: number) => {
    const place = ((total - 1) * percent) / 100;
    const low = Math.floor(place);
    return nth(low) + (nth(Math.min(low + 1, total - 1)) - nth(low)) * (place - low);
  };
  return {
    mean: sum / total,
    p50: at(50),
    p90: at(90),
    p95: at(95),
    p99: at(99),
    max: values[order[order.length - 1]],
  };
}
