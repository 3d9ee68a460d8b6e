/** How long steps took by what they computed, and which bounds are missed: as src/tokenyard/explain/advice/symptoms.py has it. */

import type { Bounds } from "../data/model/slo";
import type { Statistics } from "../data/model/statistics";
import { RULE_BOOK } from "../generated/advice";

/** Variance over squared mean from which on the number of requests changed enough to draw a line through. */
const LEAST_SPREAD = 0.01;

/** What a step computed. */
export interface StepLoad {
  /** Requests that ran before it. */
  running: number;
  /** Tokens beyond one for each of them, and beyond their drafts. */
  prefill: number;
  /** Draft tokens that it verified, and those of them that were accepted. */
  drafts: number;
  accepted: number;
}

/** Steps of one kind, added up. */
class Sums {
  steps = 0;
  tokens = 0;
  /** Over the steps: the requests that ran, their squares, and the prefill times the requests. */
  running = 0;
  squares = 0;
  prefill = 0;
  /** Drafts that were accepted. */
  accepted = 0;
  seconds = 0;
  /** Durations times the requests that ran. */
  requestSeconds = 0;

  add({ running, prefill, drafts, accepted }: StepLoad, seconds: number): void {
    this.steps += 1;
    this.tokens += running + prefill + drafts;
    this.accepted += accepted;
    this.running += running;
    this.squares += running * running;
    this.prefill += running * prefill;
    this.seconds += seconds;
    this.requestSeconds += running * seconds;
  }

  get meanMs(): number | null {
    return this.steps > 0 ? (1e3 * this.seconds) / this.steps : null;
  }

  get tokenMs(): number | null {
    return this.running > 0 ? (1e3 * this.requestSeconds) / this.outputs : null;
  }

  /** Tokens that the requests which ran got. */
  get outputs(): number {
    return this.running + this.accepted;
  }

  /**
   * Milliseconds without a request and for each request, over the tokens that a request gets in a step; null where more took no
   * longer, or hardly changed.
   */
  line(): [number, number] | null {
    const { steps, running, squares, seconds, requestSeconds } = this;
    const spread = steps * squares - running * running;
    if (steps === 0 || spread < LEAST_SPREAD * running * running) return null;
    const each = (steps * requestSeconds - running * seconds) / spread;
    const shared = (1e3 * running) / this.outputs;
    return each > 0 ? [(shared * (seconds - each * running)) / steps, shared * each] : null;
  }
}

/** Durations of the steps in which a request decoded. */
export class StepTimes {
  private readonly decode = new Sums();
  private readonly prefill = new Sums();
  private readonly large = new Sums();

  add(load: StepLoad, budget: number, seconds: number): void {
    const { prefill } = load;
    (prefill > 0 ? this.prefill : this.decode).add(load, seconds);
    if (prefill > 0 && prefill >= RULE_BOOK.symptoms.large_prefill * budget) this.large.add(load, seconds);
  }

  symptoms(boundMs: number | null, budget: number | null) {
    const { decode, prefill, large } = this;
    const [alone, beside, line] = [decode.tokenMs, prefill.tokenMs, decode.line()];
    const outputs = decode.outputs + prefill.outputs;
    const requestSeconds = decode.requestSeconds + prefill.requestSeconds;
    const both = alone !== null && beside !== null;
    const inTime = both && boundMs !== null && alone < boundMs && boundMs < beside;
    const mean = prefill.prefill / prefill.running;
    return {
      mixedSteps: large.steps,
      mixedMs: large.meanMs,
      decodeSteps: decode.steps,
      decodeMs: decode.meanMs,
      decodeTokenMs: alone,
      decodeRunning: decode.steps > 0 ? decode.running / decode.steps : null,
      decodeBaseMs: line && Math.max(line[0], 0),
      prefillSteps: prefill.steps,
      prefillTokenMs: beside,
      meanTokenMs: outputs > 0 ? (1e3 * requestSeconds) / outputs : null,
      prefillShare:
        both && requestSeconds ? (Math.max(beside - alone, 0) * prefill.outputs) / (1e3 * requestSeconds) : null,
      prefillBudgetUse: prefill.steps > 0 && budget ? prefill.tokens / (prefill.steps * budget) : null,
      batchInBound: line && boundMs !== null ? (boundMs - line[0]) / line[1] : null,
      tokensInBound: inTime ? decode.tokens / decode.steps + (mean * (boundMs - alone)) / (beside - alone) : null,
    };
  }
}

/**
 * The page's bounds are of each request: one is missed where more than one request in ten misses it. Where only that on the whole
 * time is, the larger part of it has to become shorter by the same factor.
 */
export function missedBounds({ ttftSeconds, tpotSeconds, e2eSeconds }: Statistics, { ttft, tpot, e2e }: Bounds) {
  const late = (seconds: number | undefined, bound: number | null) =>
    seconds !== undefined && bound !== null && 1e3 * seconds > bound ? [1e3 * seconds, bound] : [null, null];
  let [firstTimeMs, firstBoundMs] = late(ttftSeconds?.p90, ttft);
  let [tokenTimeMs, tokenBoundMs] = late(tpotSeconds?.p90, tpot);
  let [wholeTimeMs, wholeBoundMs] = late(e2eSeconds?.p90, e2e);
  if (firstBoundMs !== null || tokenBoundMs !== null) [wholeTimeMs, wholeBoundMs] = [null, null];
  if (wholeTimeMs !== null && wholeBoundMs !== null && ttftSeconds && e2eSeconds) {
    if (!tpotSeconds || ttftSeconds.mean > e2eSeconds.mean / 2) {
      firstTimeMs = 1e3 * ttftSeconds.mean;
      firstBoundMs = (firstTimeMs * wholeBoundMs) / wholeTimeMs;
    } else {
      tokenTimeMs = 1e3 * tpotSeconds.p90;
      tokenBoundMs = (tokenTimeMs * wholeBoundMs) / wholeTimeMs;
    }
  }
  return { firstTimeMs, firstBoundMs, tokenTimeMs, tokenBoundMs, wholeTimeMs, wholeBoundMs };
}
