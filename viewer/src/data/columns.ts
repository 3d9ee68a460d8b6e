/** Columns that grow: numbers, times and shared lists, in typed arrays that can be sent to another thread. */

import { type Lists, MISSING, type Whole } from "./model/columns";

const FIRST_CAPACITY = 256;
const INT32_MAX = 0x7fffffff;

function capacityFor(wanted: number, have: number): number {
  return Math.max(wanted, FIRST_CAPACITY, have + (have >> 1));
}

/** Whole numbers; 32 bits wide until one does not fit. */
export class WholeColumn {
  data: Whole = new Int32Array(FIRST_CAPACITY);
  length = 0;

  /** Null and undefined are MISSING. */
  push(value: number | null | undefined): void {
    this.set(this.length, value ?? MISSING);
  }

  /** Places between the end and `index` are MISSING. */
  set(index: number, value: number): void {
    if (index >= this.data.length) this.grow(index + 1);
    if ((value > INT32_MAX || value < MISSING) && this.data instanceof Int32Array) {
      this.data = Float64Array.from(this.data);
    }
    if (index > this.length) this.data.fill(MISSING, this.length, index);
    this.data[index] = value;
    if (index >= this.length) this.length = index + 1;
  }

  get(index: number): number {
    return index < this.length ? this.data[index] : MISSING;
  }

  private grow(wanted: number): void {
    const kind = this.data instanceof Int32Array ? Int32Array : Float64Array;
    const larger = new kind(capacityFor(wanted, this.data.length));
    larger.set(this.data);
    this.data = larger;
  }
}

/** Indices, -1 for none; 32 bits always. */
export class IndexColumn {
  data = new Int32Array(FIRST_CAPACITY);
  length = 0;

  push(value: number): void {
    this.set(this.length, value);
  }

  /** Places between the end and `index` are -1. */
  set(index: number, value: number): void {
    if (index >= this.data.length) {
      const larger = new Int32Array(capacityFor(index + 1, this.data.length));
      larger.set(this.data);
      this.data = larger;
    }
    if (index > this.length) this.data.fill(-1, this.length, index);
    this.data[index] = value;
    if (index >= this.length) this.length = index + 1;
  }
}

/** Seconds; NaN for none. */
export class TimeColumn {
  data = new Float64Array(FIRST_CAPACITY);
  length = 0;

  push(value: number | null | undefined): void {
    this.set(this.length, value ?? Number.NaN);
  }

  /** Places between the end and `index` are NaN. */
  set(index: number, value: number): void {
    if (index >= this.data.length) {
      const larger = new Float64Array(capacityFor(index + 1, this.data.length));
      larger.set(this.data);
      this.data = larger;
    }
    if (index > this.length) this.data.fill(Number.NaN, this.length, index);
    this.data[index] = value;
    if (index >= this.length) this.length = index + 1;
  }
}

/** A list of indices per row. A list equal to the one before shares its place: queues change seldom. */
export class ListColumn {
  readonly starts = new WholeColumn();
  readonly counts = new IndexColumn();
  readonly ids = new IndexColumn();
  /** Numbers beside the ids, if the lists have them. */
  readonly numbers: WholeColumn | null;

  constructor(withNumbers = false) {
    this.numbers = withNumbers ? new WholeColumn() : null;
  }

  get length(): number {
    return this.counts.length;
  }

  /** Null: the trace has no list here. */
  push(ids: readonly number[] | null, numbers?: readonly number[]): void {
    if (ids === null) {
      this.starts.push(this.ids.length);
      this.counts.push(MISSING);
      return;
    }
    const shared = this.sameAsLast(ids, numbers);
    this.starts.push(shared >= 0 ? shared : this.ids.length);
    this.counts.push(ids.length);
    if (shared >= 0) return;
    for (let i = 0; i < ids.length; i++) {
      this.ids.push(ids[i]);
      this.numbers?.push(numbers?.[i] ?? 0);
    }
  }

  /** Forget the rows from `length` on, and the ids from `ids` on: both as they were at an earlier moment. */
  truncate(length: number, ids: number): void {
    this.starts.length = length;
    this.counts.length = length;
    this.ids.length = ids;
    if (this.numbers) this.numbers.length = ids;
  }

  lists(): Lists {
    return { starts: this.starts.data, counts: this.counts.data, ids: this.ids.data };
  }

  /** Where the list of the row before stands, if it is the same; else -1. */
  private sameAsLast(ids: readonly number[], numbers: readonly number[] | undefined): number {
    const last = this.length - 1;
    if (last < 0 || this.counts.data[last] !== ids.length) return -1;
    const start = this.starts.data[last];
    for (let i = 0; i < ids.length; i++) {
      if (this.ids.data[start + i] !== ids[i]) return -1;
      if (numbers && this.numbers && this.numbers.data[start + i] !== numbers[i]) return -1;
    }
    return start;
  }
}

/** The number at `index`, or null if it is missing. */
export function known(column: Whole, index: number): number | null {
  const value = column[index];
  return value === MISSING || value === undefined ? null : value;
}

/** The time at `index`, or null if it is missing. */
export function knownTime(column: Float64Array, index: number): number | null {
  const value = column[index];
  return Number.isNaN(value) || value === undefined ? null : value;
}
