/** The numbers that advice is judged by: those of src/tokenyard/explain/advice/symptoms.py, from columns. */

import { endOfRow } from "../data/lives";
import { MISSING, type Range, type Row } from "../data/model/columns";
import { NO_REASON, STEP_REASONS } from "../data/model/reasons";
import type { Bounds } from "../data/model/slo";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { inSlices } from "../data/slices";
import { isOfSlots } from "../data/takers";
import { codeOf } from "../data/wording";
import { RULE_BOOK } from "../generated/advice";
import { STEP_REASONS as STEP_TABLE } from "../generated/vocabulary";
import { missedBounds, StepTimes } from "./stepTimes";

/** What one reason cost. */
export interface Held {
  steps: number;
  /** Request-seconds. */
  seconds: number;
  /** Mean share of the blocks that were free before its steps. */
  kvFree: number | null;
  kv: { needed: number; free: number; smallestNeed: number | null; smallerWouldFitSteps: number } | null;
  worst: Worst | null;
}

/** The step in which most requests ran or were held back by a reason, the first of those alike: what would have been enough then. */
export interface Worst {
  running: number;
  held: number;
  totalBlocks: number | null;
  demand: number;
  /** So many of these requests the KV cache holds, if those that run are like the others. */
  fits: number | null;
  /** KV blocks for all of them, by the same measure. */
  neededBlocks: number | null;
  /** So many times the blocks that there are. */
  shortage: number | null;
}

export function worstOf(running: number, held: number, used: number | null, total: number | null): Worst {
  const demand = running + held;
  const measured = running > 0 && used && total;
  const neededBlocks = running > 0 && used ? Math.ceil((used * demand) / running) : null;
  return {
    ...{ running, held, demand, totalBlocks: total, neededBlocks },
    fits: measured ? Math.floor((total * running) / used) : null,
    shortage: neededBlocks && total ? neededBlocks / total : null,
  };
}

/** Null where the trace does not record it. */
export interface Symptoms {
  steps: number;
  requests: number | null;
  jobs: number;
  /** Most LoRA adapters that the requests of one moment asked for while some waited for a slot. */
  adapters: number;
  /** Time of all requests in the queues: (running + waiting) times duration, over the steps. */
  requestSeconds: number;
  reasons: Record<string, Held>;
  /** The reasons are what the classifier can prove: the trace records none. */
  guessed: boolean;
  tokenBudget: number | null;
  maxRunning: number | null;
  /** Most requests that ran at once. */
  peakRunning: number | null;
  preemptions: number | null;
  recomputedTokens: number | null;
  scheduledTokens: number | null;
  localHitRate: number | null;
  peakKvUse: number | null;
  tpotP50Ms: number | null;
  tpotP99Ms: number | null;
  /** Steps in which some request decoded beside a large prefill, and their mean duration. */
  mixedSteps: number;
  mixedMs: number | null;
  /** Steps in which all that ran got one token, and drafts to verify; in `Token` what one of the tokens that came of them took. */
  decodeSteps: number;
  decodeMs: number | null;
  decodeTokenMs: number | null;
  decodeRunning: number | null;
  /** Where the line through their durations begins. */
  decodeBaseMs: number | null;
  /** Steps in which a request decoded beside any prefill. */
  prefillSteps: number;
  prefillTokenMs: number | null;
  meanTokenMs: number | null;
  /** Of the time of running requests, that by which prefill made steps longer. */
  prefillShare: number | null;
  prefillBudgetUse: number | null;
  /** Bounds that are missed, and the times that they are on. */
  tokenBoundMs: number | null;
  tokenTimeMs: number | null;
  firstBoundMs: number | null;
  firstTimeMs: number | null;
  wholeBoundMs: number | null;
  wholeTimeMs: number | null;
  /** The classes of requests that these bounds are of; null: all. */
  tokenClass: string | null;
  firstClass: string | null;
  wholeClass: string | null;
  ttftMs: number | null;
  prefillMs: number | null;
  unseenMs: number | null;
  /** Requests, and tokens, with which a step would take as long as a token may. */
  batchInBound: number | null;
  tokensInBound: number | null;
  settings: Record<string, unknown>;
}

/** What a setting was in this run; null if the trace does not record it. */
export function settingOf(symptoms: Symptoms, setting: string): unknown {
  if (Object.hasOwn(symptoms.settings, setting)) return symptoms.settings[setting];
  if (setting === "max_num_seqs") return symptoms.maxRunning;
  return setting === "max_num_batched_tokens" ? symptoms.tokenBudget : null;
}

const GATHERED = RULE_BOOK.symptoms;
/** The page's bounds are of all requests. */
const OF_ALL = { tokenClass: null, firstClass: null, wholeClass: null };

/** The symptoms of the range that `found` covers. */
export async function symptomsOf(
  store: TraceStore,
  found: Statistics,
  bounds: Bounds,
  signal?: AbortSignal,
): Promise<Symptoms> {
  const counter = new Counter(store);
  await inSlices(found.range.first, found.range.last, (row) => counter.row(row), signal);
  const whole = found.range.first === 0 && found.range.last === store.rows - 1;
  const last = found.range.last;
  const { localTokens, promptTokens } = found.prefixHits;
  const here = present(store, whole ? null : found.range);
  const missed = missedBounds(found, bounds);
  const tokenBudget = known(store.steps.tokenBudget[last]);
  const [ttft, queue] = [found.ttftSeconds?.mean ?? null, found.queueSeconds?.mean ?? null];
  const { unseenSeconds } = found;
  return {
    steps: found.steps,
    ...here,
    adapters: adaptersAsked(store, counter.slotRows),
    ...counter.result(found),
    ...counter.times.symptoms(missed.tokenBoundMs, tokenBudget),
    ...missed,
    ...OF_ALL,
    ttftMs: ttft && 1e3 * ttft,
    prefillMs: ttft === null || queue === null ? null : 1e3 * ttft - 1e3 * queue,
    unseenMs: unseenSeconds && here.requests ? (1e3 * unseenSeconds) / here.requests : null,
    tokenBudget,
    maxRunning: known(store.steps.maxRunning[last]),
    preemptions: found.preemptions,
    recomputedTokens: found.recomputedTokens,
    localHitRate: promptTokens > 0 ? localTokens / promptTokens : null,
    peakKvUse: found.peakKvUse,
    tpotP50Ms: found.tpotSeconds && 1e3 * found.tpotSeconds.p50,
    tpotP99Ms: found.tpotSeconds && 1e3 * found.tpotSeconds.p99,
    settings: settingsOf(store.start?.config),
  };
}

/** Most adapters that the requests of one row ask for, of the rows in which some wait for a slot. */
function adaptersAsked({ requests, adapters }: TraceStore, slotRows: readonly Row[]): number {
  if (slotRows.length === 0) return 0;
  const { adapter, arrivedRow, finishedRow } = requests;
  const events: [Row, number, number][] = [];
  for (let request = 0; request < requests.count; request++) {
    const [one, from, last] = [adapter[request], arrivedRow[request], finishedRow[request]];
    if (one < 0 || from < 0) continue;
    events.push([from, 1, one]);
    if (last >= 0) events.push([Math.max(last + 1, from), -1, one]);
  }
  events.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const asking = new Int32Array(adapters.length);
  let [now, most, at] = [0, 0, 0];
  for (const row of slotRows) {
    for (; at < events.length && events[at][0] <= row; at++) {
      const [, by, one] = events[at];
      asking[one] += by;
      if (by > 0 ? asking[one] === 1 : asking[one] === 0) now += by;
    }
    most = Math.max(most, now);
  }
  return most;
}

/** Requests, and jobs of theirs, that were there at some step of the range; of all if there is none. */
function present(store: TraceStore, range: Range | null): { requests: number; jobs: number } {
  const { firstRow, lastRow, job, count } = store.requests;
  const jobs = new Set<number>();
  let requests = 0;
  for (let request = 0; request < count; request++) {
    if (range && (firstRow[request] < 0 || firstRow[request] > range.last || lastRow[request] < range.first)) continue;
    requests += 1;
    if (job[request] >= 0) jobs.add(job[request]);
  }
  return { requests, jobs: jobs.size };
}

interface Sums {
  steps: number;
  /** Request-microseconds. */
  micros: number;
  free: number;
  freeSteps: number;
  worst: { row: Row; held: number; demand: number } | null;
}

class Counter {
  private requestMicros = 0;
  private scheduled: number | null = null;
  private peakRunning: number | null = null;
  readonly times = new StepTimes();
  /** In which requests wait for a slot for their adapter. */
  readonly slotRows: Row[] = [];
  private readonly recorded = new Map<string, Sums>();
  private readonly guesses = new Map<string, Sums>();

  constructor(private readonly store: TraceStore) {}

  row(row: Row): void {
    const { steps, outcomes, reasonNames } = this.store;
    const passed = Math.max(micros(endOfRow(this.store, row)) - micros(steps.ts[row]), 0) || 0;
    this.requestMicros += passed * (or0(steps.numRunning[row]) + or0(steps.numWaiting[row]));
    if (steps.numRunning[row] !== MISSING) this.peakRunning = Math.max(this.peakRunning ?? 0, steps.numRunning[row]);
    const at = steps.outcome[row];
    if (at >= 0) {
      const { starts, counts, ids, requests } = outcomes.byReason;
      for (let i = starts[at]; i < starts[at] + Math.max(counts[at], 0); i++) {
        const reason = codeOf(reasonNames[ids[i]]);
        this.hold(this.recorded, reason, row, requests[i], passed);
        if (requests[i] > 0 && isOfSlots(reason)) this.slotRows.push(row);
      }
    } else if (steps.stepReason[row] !== NO_REASON) {
      const { proves } = STEP_TABLE[STEP_REASONS[steps.stepReason[row]]];
      const held = or0(steps.unadmitted[row]);
      if (proves !== null && held > 0) this.hold(this.guesses, proves, row, held, passed);
    }
    if (steps.tokenSum[row] !== MISSING) this.tokens(row, steps.tokenSum[row]);
  }

  private hold(into: Map<string, Sums>, reason: string, row: Row, held: number, passed: number): void {
    let sums = into.get(reason);
    if (!sums) {
      sums = { steps: 0, micros: 0, free: 0, freeSteps: 0, worst: null };
      into.set(reason, sums);
    }
    sums.steps += 1;
    sums.micros += passed * held;
    const { freeBlocks, totalBlocks, numRunning } = this.store.steps;
    const demand = numRunning[row] + held;
    if (numRunning[row] !== MISSING && !(sums.worst && demand <= sums.worst.demand)) sums.worst = { row, held, demand };
    if (freeBlocks[row] === MISSING || totalBlocks[row] <= 0) return;
    sums.free += freeBlocks[row] / totalBlocks[row];
    sums.freeSteps += 1;
  }

  private tokens(row: Row, tokens: number): void {
    const { steps } = this.store;
    this.scheduled = (this.scheduled ?? 0) + tokens;
    const running = or0(steps.numRunning[row]);
    const budget = or0(steps.tokenBudget[row]);
    const seconds = steps.stepSeconds[row];
    if (running <= 0 || budget <= 0 || Number.isNaN(seconds)) return;
    const [drafts, accepted] = [or0(steps.draftTokens[row]), or0(steps.acceptedTokens[row])];
    this.times.add({ running, prefill: Math.max(tokens - running - drafts, 0), drafts, accepted }, budget, seconds);
  }

  private worst({ row, held }: { row: Row; held: number }): Worst {
    const { freeBlocks, totalBlocks, numRunning } = this.store.steps;
    const total = totalBlocks[row] > 0 ? totalBlocks[row] : null;
    const used = total === null || freeBlocks[row] === MISSING ? null : total - freeBlocks[row];
    return worstOf(numRunning[row], held, used, total);
  }

  result(found: Statistics) {
    const guessed = found.recorded.length === 0;
    const reasons: Record<string, Held> = {};
    for (const [name, sums] of guessed ? this.guesses : this.recorded) {
      reasons[name] = {
        steps: sums.steps,
        seconds: sums.micros / 1e6,
        kvFree: sums.freeSteps ? sums.free / sums.freeSteps : null,
        kv: found.recorded.find((totals) => totals.reason === name)?.kv ?? null,
        worst: sums.worst && this.worst(sums.worst),
      };
    }
    return {
      requestSeconds: this.requestMicros / 1e6,
      reasons,
      guessed,
      peakRunning: this.peakRunning,
      scheduledTokens: this.scheduled,
    };
  }
}

/** Whole microseconds, as the waiting time is counted. */
function micros(seconds: number): number {
  return Math.floor(seconds * 1e6 + 0.5);
}

function or0(value: number): number {
  return value === MISSING ? 0 : value;
}

function known(value: number): number | null {
  return value === MISSING ? null : value;
}

function settingsOf(config: unknown): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  if (typeof config !== "object" || config === null) return found;
  for (const [section, names] of Object.entries(GATHERED.settings)) {
    const values: unknown = Object.hasOwn(config, section) ? (config as Record<string, unknown>)[section] : null;
    if (typeof values !== "object" || values === null) continue;
    for (const name of names) {
      if (Object.hasOwn(values, name)) found[name] = (values as Record<string, unknown>)[name];
    }
  }
  return found;
}
