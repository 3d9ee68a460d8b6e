/** Mean and percentiles, as src/tokenyard/explain/report/figures.py takes them: linear between neighbours. */

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
  return { mean: sum / length, p50: at(50), p90: at(90), p95: at(95), p99: at(99), max: sorted[length - 1] };
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
  /** Numbers too large to count. */
  private large: number[] = [];

  add(value: number): void {
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
