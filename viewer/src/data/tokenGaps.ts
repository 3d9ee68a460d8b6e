/**
 * Inter-token latency: the time between two deliveries of tokens to an answer, as src/tokenyard/explain/figures.py counts
 * it. An answer gets one in every sampling step from its first token to its end, but for its pauses, which are told.
 * Traces that do not tell of pauses: an answer with as many tokens as there were steps counts, the others are left out.
 */

import { endOfRow } from "./lives";
import { MISSING, type Range, type RequestIndex, type Row } from "./model/columns";
import type { Spread } from "./model/statistics";
import { knownSpread } from "./spread";
import { endOf } from "./status";
import type { StoreInside } from "./store";

/** Gaps between steps of the range; null where none is known. `count`: of so many answers, where others are left out. */
export function tokenGaps(store: StoreInside, range: Range, warmup: number): Spread | null {
  const { steps, requests } = store;
  if ((store.start?.everyN ?? 1) !== 1) return null;
  const gaps = new Gaps(store, range, warmup);
  const ended = Array.from(requests.finishedRow.keys()).filter(
    (request) => requests.finishedRow[request] >= 0 && gaps.counts(request),
  );
  ended.sort((a, b) => requests.finishedRow[a] - requests.finishedRow[b]);
  let next = 0;
  for (let row = 0; row <= range.last; row++) {
    const sampled = steps.sampledTokens[row];
    if (Number.isNaN(steps.completedTs[row]) !== (sampled === MISSING)) return null;
    gaps.step(row, sampled > 0);
    for (; next < ended.length && requests.finishedRow[ended[next]] <= row; next++) gaps.end(ended[next]);
  }
  return gaps.result();
}

class Gaps {
  private readonly moments: number[] = [];
  /** The first moment of the range. */
  private begin = 0;
  private inRange = false;
  /** Answers that go on at each gap, as differences from the gap before. */
  private readonly changes: Int32Array;
  /** Answer that gets tokens -> the moment with which that began; that has paused -> its last moment. */
  private readonly flowing = new Map<RequestIndex, number>();
  private readonly paused = new Map<RequestIndex, number>();
  private readonly pauses: number[] = [];
  /** Pauses that were not over when their request ended. */
  private readonly floors: number[] = [];
  private ending: RequestIndex[] = [];
  /** Answers whose pauses the trace does not tell. */
  private readonly untold: RequestIndex[] = [];
  private answers = 0;

  constructor(
    private readonly store: StoreInside,
    private readonly range: Range,
    private readonly warmup: number,
  ) {
    this.changes = new Int32Array(range.last + 2);
  }

  /** Requests that arrived in the warm-up do not count. */
  counts(request: RequestIndex): boolean {
    return !(this.store.requests.arrivalTime[request] < this.warmup);
  }

  step(row: Row, hasSampled: boolean): void {
    const { moments, paused } = this;
    if (row === this.range.first) {
      this.begin = moments.length;
      this.inRange = true;
    }
    if (!hasSampled) return;
    const ts = this.store.steps.completedTs[row];
    const at = moments.push(ts) - 1;
    const { starts, counts, ids, kinds } = this.store.lists.streams;
    for (let i = starts[row]; i < starts[row] + counts[row]; i++) {
      const request = ids[i];
      if (!this.counts(request)) continue;
      if (kinds[i] === 0) {
        this.endRun(request, at - 1);
        paused.set(request, moments[Math.max(at - 1, 0)]);
        continue;
      }
      const since = paused.get(request);
      if (since !== undefined && this.inRange) this.pauses.push(ts - since);
      paused.delete(request);
      this.flowing.set(request, at);
    }
    this.settle();
  }

  end(request: RequestIndex): void {
    const { firstTokenTime, outputTokens } = this.store.requests;
    const isOld = firstTokenTime[request] <= this.moments[this.moments.length - 1];
    if (this.flowing.has(request) || this.paused.has(request) || !isOld) this.ending.push(request);
    else if (this.inRange && endOf(this.store, request) === "served" && outputTokens[request] > 1)
      this.untold.push(request);
  }

  result(): Spread | null {
    const { moments, changes, paused, pauses, floors } = this;
    const last = moments.length - 1;
    this.settle();
    if (last < 1) return null;
    for (const from of this.flowing.values()) this.count(from, last);
    this.answers += this.flowing.size + paused.size;
    const now = endOfRow(this.store, this.range.last);
    if (this.range.last === this.store.rows - 1) {
      const flowing = Array.from(this.flowing, () => moments[last]);
      floors.push(...[...paused.values(), ...flowing].map((since) => now - since).filter((open) => open > 0));
    }
    const leftOut = this.untold.filter((request) => !this.isWhole(request)).length;
    const gaps = pauses.slice();
    const counts = pauses.map(() => 1);
    let open = 0;
    for (let at = this.begin; at < last; at++) {
      open += changes[at];
      gaps.push(moments[at + 1] - moments[at]);
      counts.push(open);
    }
    const spread = knownSpread(gaps, floors, counts);
    return spread && leftOut > 0 ? { ...spread, count: this.answers } : spread;
  }

  /** An answer got tokens in all steps from one to another. */
  private count(from: number, to: number): void {
    const first = Math.max(from, this.begin);
    if (to <= first) return;
    this.changes[first] += 1;
    this.changes[to] -= 1;
  }

  private endRun(request: RequestIndex, to: number): void {
    this.count(this.flowing.get(request) ?? to, to);
    this.flowing.delete(request);
  }

  /** A step is over with which, or before which, they ended. */
  private settle(): void {
    const { moments, paused } = this;
    for (const request of this.ending) {
      const end = this.store.requests.finishedTime[request];
      const since = paused.get(request);
      if (this.inRange && (since !== undefined || this.flowing.has(request))) this.answers += 1;
      paused.delete(request);
      const after = upTo(moments, end);
      const isCut = this.flowing.has(request) && endOf(this.store, request) !== "served";
      const last = since ?? (isCut ? moments[after - 1] : end);
      if (this.inRange && end > last) this.floors.push(end - last);
      const isNext =
        endOf(this.store, request) === "served" &&
        after < moments.length &&
        (after === 0 || moments[after] - end < end - moments[after - 1]);
      this.endRun(request, isNext ? after : after - 1);
    }
    this.ending = [];
  }

  /** Whether it has as many tokens as there were steps: then it counts. */
  private isWhole(request: RequestIndex): boolean {
    const { firstTokenTime, finishedTime, outputTokens } = this.store.requests;
    const from = nearest(this.moments, firstTokenTime[request]);
    const to = nearest(this.moments, finishedTime[request]);
    if (to - from !== outputTokens[request] - 1) return false;
    this.count(from, to);
    this.answers += 1;
    return true;
  }
}

/** How many moments are not after one. */
function upTo(moments: readonly number[], moment: number): number {
  let low = 0;
  let high = moments.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (moments[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The moment nearest to one: an engine notes a token's time a little apart from its step's end. */
function nearest(moments: readonly number[], moment: number): number {
  const after = Math.min(Math.max(upTo(moments, moment), 1), moments.length - 1);
  return moment - moments[after - 1] < moments[after] - moment ? after - 1 : after;
}
