/** Everything that the Statistics tab shows over a range of rows; the numbers are those of `tokenyard report`. */

import { endOfRow, secondsOf } from "./lives";
import { MISSING, type Range, type RequestIndex, type Row } from "./model/columns";
import { BUCKETS, NO_REASON, STEP_REASONS } from "./model/reasons";
import type { ReasonTotals, Statistics } from "./model/statistics";
import type { TraceStore } from "./model/trace";
import { Attempts, isOpen, LATENCIES, personOf, soFar } from "./population";
import { endRowOf, tellsTimes } from "./requestTimes";
import { eachHeld } from "./shares";
import { inSlices } from "./slices";
import { Counter, knownSpread } from "./spread";
import type { StoreInside } from "./store";
import { tokenGaps } from "./tokenGaps";
import { micros } from "./waitingTally";
import { agrees, familyOf } from "./wording";

const BUDGET_BINS = 20;
const HIT_BINS = 10;

export async function statistics(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Statistics> {
  const counted = afterWarmup(store, range);
  const gathering = new Gathering(store as StoreInside, counted, counted === range ? 0 : store.start?.warmup);
  await inSlices(counted.first, counted.last, (row) => gathering.row(row), signal);
  await inSlices(0, store.requests.count - 1, (request) => gathering.request(request), signal);
  return gathering.result();
}

/** The part of a range that counts; the range itself where it is of the warm-up alone, or there is none. */
function afterWarmup({ start, rows, steps }: TraceStore, range: Range): Range {
  let first = 0;
  while (first < rows && steps.ts[first] < (start?.warmup ?? 0)) first += 1;
  return first > 0 && first <= range.last ? { first: Math.max(first, range.first), last: range.last } : range;
}

interface KVSums {
  steps: number;
  needed: number;
  free: number;
  cachedHits: number;
  reserved: number;
  watermark: number;
  smallestSteps: number;
  smallest: number;
  fits: number;
}

interface Tally {
  steps: number;
  requests: number;
  /** Whole microseconds, as waiting times are counted. */
  micros: number;
  kv: KVSums | null;
}

class Gathering {
  private readonly buckets = BUCKETS.map(() => 0);
  private readonly reasons = STEP_REASONS.map(() => 0);
  private readonly recorded = new Map<string, Tally>();
  private readonly pairs = new Map<string, { bucket: number; reason: string; steps: number }>();
  private readonly budgetBins = Array.from({ length: BUDGET_BINS }, () => 0);
  private budgetSum = 0;
  private budgetRows = 0;
  private readonly budgets = new Map<number, number>();
  private readonly running = new Counter();
  private readonly waiting = new Counter();
  private peakKvUse: number | null = null;
  private preemptions: number | null = null;
  private recomputed: number | null = null;
  private sampled: number | null = null;
  private drafts: number | null = null;
  private accepted: number | null = null;
  private readonly ends = new Map<string, number>();
  private readonly hits = {
    counts: Array.from({ length: HIT_BINS }, () => 0),
    localByBin: Array.from({ length: HIT_BINS }, () => 0),
    externalByBin: Array.from({ length: HIT_BINS }, () => 0),
    lookups: 0,
    lookupsWithHit: 0,
    promptTokens: 0,
    localTokens: 0,
    externalTokens: 0,
    shares: 0,
  };
  private unseenMicros = 0;
  private finished = 0;
  private outputTokens = 0;
  private readonly times: Statistics["times"] = { queue: [], ttft: [], tpot: [], e2e: [] };
  private readonly floors: Statistics["times"] = { queue: [], ttft: [], tpot: [], e2e: [] };
  private readonly open: Statistics["open"] = [];
  private readonly outcomes = { arrived: 0, served: 0, refused: 0, cancelled: 0, unfinished: 0 };
  private readonly timed: boolean;
  private readonly attempts: Attempts;
  private again = 0;
  private lostTokens = 0;

  constructor(
    private readonly store: StoreInside,
    private readonly range: Range,
    /** Requests that arrived before do not count. */
    private readonly warmup: number | null | undefined,
  ) {
    this.timed = tellsTimes(store);
    this.attempts = new Attempts(store, (request) => this.counts(request));
  }

  row(row: Row): void {
    const { steps } = this.store;
    this.buckets[steps.bucket[row]] += 1;
    const reason = steps.stepReason[row];
    if (reason !== NO_REASON) this.reasons[reason] += 1;
    if (steps.outcome[row] >= 0) this.outcome(row, steps.outcome[row]);
    const seconds = secondsOf(this.store, row);
    this.budget(steps.tokenSum[row], steps.tokenBudget[row]);
    this.drafts = plus(this.drafts, steps.draftTokens[row]);
    this.accepted = plus(this.accepted, steps.acceptedTokens[row]);
    if (steps.numRunning[row] !== MISSING) this.running.add(steps.numRunning[row], seconds);
    if (steps.numWaiting[row] !== MISSING) this.waiting.add(steps.numWaiting[row], seconds);
    if (steps.freeBlocks[row] !== MISSING && steps.totalBlocks[row] > 0) {
      this.peakKvUse = Math.max(this.peakKvUse ?? 0, 1 - steps.freeBlocks[row] / steps.totalBlocks[row]);
    }
    this.preemptions = plus(this.preemptions, steps.numPreempted[row]);
    this.recomputed = plus(this.recomputed, steps.recomputedTokens[row]);
    this.sampled = plus(this.sampled, steps.sampledTokens[row]);
  }

  private budget(used: number, budget: number): void {
    if (used === MISSING || budget === MISSING || budget <= 0) return;
    const share = used / budget;
    this.budgetBins[Math.max(0, Math.min(Math.floor(share * BUDGET_BINS), BUDGET_BINS - 1))] += 1;
    this.budgetSum += share;
    this.budgetRows += 1;
    this.budgets.set(budget, (this.budgets.get(budget) ?? 0) + 1);
  }

  private outcome(row: Row, at: number): void {
    const { outcomes, reasonNames, steps } = this.store;
    const lost = Math.max(micros(endOfRow(this.store, row)) - micros(steps.ts[row]), 0) || 0;
    eachHeld(this.store, row, (which, requests) => {
      const tally = this.tally(reasonNames[which]);
      tally.steps += 1;
      tally.requests += requests;
      tally.micros += lost * requests;
    });
    const reason = outcomes.reason[at];
    const kv = outcomes.limit[at] >= 0 || outcomes.needed[at] !== MISSING;
    if (reason >= 0 && outcomes.numRequests[at] > 0 && kv) this.addKV(this.tally(reasonNames[reason]), at);
    const main = outcomes.mainReason[at];
    if (steps.stepReason[row] === NO_REASON || main < 0 || BUCKETS[steps.bucket[row]] === "unknown") return;
    const key = `${steps.bucket[row]} ${reasonNames[main]}`;
    const pair = this.pairs.get(key) ?? { bucket: steps.bucket[row], reason: reasonNames[main], steps: 0 };
    pair.steps += 1;
    this.pairs.set(key, pair);
  }

  private tally(reason: string): Tally {
    let tally = this.recorded.get(reason);
    if (!tally) {
      tally = { steps: 0, requests: 0, micros: 0, kv: null };
      this.recorded.set(reason, tally);
    }
    return tally;
  }

  private addKV(tally: Tally, at: number): void {
    const { outcomes } = this.store;
    tally.kv ??= {
      ...{ steps: 0, needed: 0, free: 0, cachedHits: 0, reserved: 0, watermark: 0 },
      ...{ smallestSteps: 0, smallest: 0, fits: 0 },
    };
    const free = or0(outcomes.free[at]);
    tally.kv.steps += 1;
    tally.kv.needed += or0(outcomes.needed[at]);
    tally.kv.free += free;
    tally.kv.cachedHits += or0(outcomes.cachedHits[at]);
    tally.kv.reserved += or0(outcomes.reserved[at]);
    tally.kv.watermark += or0(outcomes.watermark[at]);
    const smallest = outcomes.smallestNeed[at];
    if (smallest === MISSING) return;
    tally.kv.smallestSteps += 1;
    tally.kv.smallest += smallest;
    const spoken = or0(outcomes.reserved[at]) + or0(outcomes.watermark[at]);
    if (smallest <= free - spoken) tally.kv.fits += 1;
  }

  private counts(request: RequestIndex): boolean {
    return !(this.warmup && this.store.requests.arrivalTime[request] < this.warmup);
  }

  request(request: RequestIndex): void {
    const { requests } = this.store;
    if (!this.counts(request)) return;
    const looked = requests.lookupRow[request];
    if (looked >= this.range.first && looked <= this.range.last) this.lookup(request);
    const ended = endRowOf(this.store, request);
    if (ended >= this.range.first && ended <= this.range.last) this.end(request);
    else if (this.range.last === this.store.rows - 1 && isOpen(this.store, request)) this.count(request);
    this.unseen(request, ended);
  }

  /** Its time until the snapshot that could show it first, or until its end if none could. */
  private unseen(request: RequestIndex, ended: Row): void {
    const { requests, rows, steps } = this.store;
    const row = requests.arrivedRow[request];
    if (row < this.range.first || Math.min(row, rows - 1) > this.range.last) return;
    const gone = requests.finishedRow[request] >= 0 && ended < row;
    const until = gone ? requests.finishedTime[request] : steps.ts[row];
    const lost = micros(until) - micros(requests.arrivalTime[request]);
    if (lost > 0) this.unseenMicros += lost;
  }

  private lookup(request: RequestIndex): void {
    const { requests } = this.store;
    const prompt = requests.lookupPromptTokens[request];
    if (prompt === MISSING) return;
    const local = or0(requests.localHitTokens[request]);
    const external = or0(requests.externalHitTokens[request]);
    const share = prompt > 0 ? (local + external) / prompt : 0;
    const bin = Math.max(0, Math.min(Math.floor(share * HIT_BINS), HIT_BINS - 1));
    const { hits } = this;
    hits.counts[bin] += 1;
    hits.localByBin[bin] += local;
    hits.externalByBin[bin] += external;
    hits.lookups += 1;
    if (local + external > 0) hits.lookupsWithHit += 1;
    hits.promptTokens += prompt;
    hits.localTokens += local;
    hits.externalTokens += external;
    hits.shares += share;
  }

  private end(request: RequestIndex): void {
    if (this.attempts.goesOn(request)) {
      this.again += 1;
      this.lostTokens += or0(this.store.requests.outputTokens[request]);
      return;
    }
    this.finished += 1;
    const why = this.store.finishReasons[this.store.requests.finishReason[request]] ?? "unknown";
    this.ends.set(why, (this.ends.get(why) ?? 0) + 1);
    this.outputTokens += or0(this.store.requests.outputTokens[request]);
    this.count(request);
  }

  private count(request: RequestIndex): void {
    const { outcome, times, floors } = personOf(this.store, request, this.attempts.firstOf(request));
    this.outcomes.arrived += 1;
    this.outcomes[outcome] += 1;
    if (!this.timed) return;
    if (outcome === "unfinished") this.open.push(soFar(times, floors));
    for (const name of LATENCIES) {
      this.times[name].push(times[name]);
      this.floors[name].push(floors[name]);
    }
  }

  result(): Statistics {
    const { range, store } = this;
    const empty = range.last < range.first;
    const seconds = empty ? Number.NaN : endOfRow(store, range.last) - store.steps.ts[range.first];
    const known = Number.isNaN(seconds) ? null : seconds;
    const { shares, ...hits } = this.hits;
    const everyStep = (store.start?.everyN ?? 1) === 1;
    const told = this.finished > 0 && store.livesRecorded;
    const sampled = this.sampled !== null && everyStep ? this.sampled - this.lostTokens : null;
    const outputTokens = sampled ?? (told ? this.outputTokens : null);
    return {
      range,
      steps: empty ? 0 : range.last - range.first + 1,
      seconds: known,
      buckets: this.buckets,
      reasons: this.reasons,
      recorded: this.totals(),
      unseenSeconds: store.livesRecorded && everyStep ? this.unseenMicros / 1e6 : null,
      agreement: this.agreement(),
      tokenBudget: {
        counts: this.budgetBins,
        mean: this.budgetRows ? this.budgetSum / this.budgetRows : null,
        budget: mostFrequent(this.budgets),
      },
      prefixHits: { ...hits, mean: hits.lookups ? shares / hits.lookups : null },
      overTime: { running: this.running.mean, waiting: this.waiting.mean },
      drafts: this.drafts === null ? null : { tokens: this.drafts, accepted: this.accepted ?? 0 },
      ends: [...this.ends].map(([reason, requests]) => ({ reason, requests })).sort((a, b) => b.requests - a.requests),
      itlSeconds: tokenGaps(store, range, this.warmup || 0),
      running: this.running.spread(),
      waiting: this.waiting.spread(),
      peakKvUse: this.peakKvUse,
      preemptions: this.preemptions,
      recomputedTokens: this.recomputed,
      sampledTokens: this.sampled,
      finished: this.finished,
      outputTokens,
      outcomes: this.outcomes,
      attempts: this.again
        ? { sent: this.outcomes.arrived + this.again, again: this.again, lostTokens: this.lostTokens }
        : null,
      requestsPerSecond: known ? this.outcomes.served / known : null,
      tokensPerSecond: known && outputTokens !== null ? outputTokens / known : null,
      queueSeconds: knownSpread(this.times.queue, this.floors.queue),
      ttftSeconds: knownSpread(this.times.ttft, this.floors.ttft),
      tpotSeconds: knownSpread(this.times.tpot, this.floors.tpot),
      e2eSeconds: knownSpread(this.times.e2e, this.floors.e2e),
      times: this.times,
      open: this.open,
      warmup: this.warmup || null,
    };
  }

  private totals(): ReasonTotals[] {
    const totals = [...this.recorded].map(([reason, { steps, requests, micros: lost, kv }]) => ({
      reason,
      family: familyOf(reason),
      steps,
      requests,
      seconds: lost / 1e6,
      kv: kv && {
        needed: kv.needed / kv.steps,
        free: kv.free / kv.steps,
        cachedHits: kv.cachedHits / kv.steps,
        reserved: kv.reserved / kv.steps,
        watermark: kv.watermark / kv.steps,
        smallestNeed: kv.smallestSteps ? kv.smallest / kv.smallestSteps : null,
        smallerWouldFitSteps: kv.fits,
      },
    }));
    return totals.sort((a, b) => b.seconds - a.seconds || b.requests - a.requests || (a.reason < b.reason ? -1 : 1));
  }

  private agreement(): Statistics["agreement"] {
    if (!this.store.hasReasons) return null;
    const pairs = [...this.pairs.values()]
      .map(({ bucket, reason, steps }) => ({
        bucket: BUCKETS[bucket],
        recorded: reason,
        steps,
        agrees: agrees(BUCKETS[bucket], reason),
      }))
      .sort((a, b) => b.steps - a.steps || (`${a.bucket} ${a.recorded}` < `${b.bucket} ${b.recorded}` ? -1 : 1));
    const sum = (some: typeof pairs) => some.reduce((total, pair) => total + pair.steps, 0);
    return { compared: sum(pairs), disagreeing: sum(pairs.filter((pair) => !pair.agrees)), pairs };
  }
}

function plus(sum: number | null, value: number): number | null {
  return value === MISSING ? sum : (sum ?? 0) + value;
}

function or0(value: number): number {
  return value === MISSING ? 0 : value;
}

function mostFrequent(counts: Map<number, number>): number | null {
  let best: number | null = null;
  for (const [value, rows] of counts) if (best === null || rows > (counts.get(best) ?? 0)) best = value;
  return best;
}
