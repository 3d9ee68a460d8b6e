/** How the run went, in slices of the clock: queues, throughput, goodput, cache hits, and how long requests took. */

import { originOf } from "./clock";
import { endOfRow, secondsOf } from "./lives";
import { MISSING, type Range } from "./model/columns";
import type { OverTime, Percentiles } from "./model/overTime";
import type { Bounds } from "./model/slo";
import type { TraceStore } from "./model/trace";
import { Attempts } from "./population";
import { endRowOf, tellsTimes, timesOf } from "./requestTimes";
import { inSlices } from "./slices";
import { isBounded, meets } from "./slo";
import { knownSpread } from "./spread";
import { isCutShort } from "./status";
import type { StoreInside } from "./store";

/** Requests in a slice of the rates, on average, at least. */
const ENOUGH = 4;

/** Null if the trace has no times. Rows count where they begin, requests where they end; a slice without any is a gap. */
export async function overTime(
  store: TraceStore,
  range: Range,
  slices: number,
  bounds: Bounds,
  signal?: AbortSignal,
): Promise<OverTime | null> {
  const inside = store as StoreInside;
  const { steps, requests } = store;
  const from = steps.ts[range.first];
  const width = (endOfRow(store, range.last) - from) / slices;
  if (!(width > 0)) return null;
  const of = (ts: number) => Math.min(Math.max(Math.floor((ts - from) / width), 0), slices - 1);
  const sums = { running: meanOf(slices), waiting: meanOf(slices) };
  const sampled = new Float64Array(slices).fill(Number.NaN);
  await inSlices(
    range.first,
    range.last,
    (row) => {
      const slice = of(steps.ts[row]);
      const seconds = secondsOf(store, row);
      if (steps.numRunning[row] !== MISSING) sums.running.add(slice, steps.numRunning[row], seconds);
      if (steps.numWaiting[row] !== MISSING) sums.waiting.add(slice, steps.numWaiting[row], seconds);
      if (steps.sampledTokens[row] !== MISSING) sampled[slice] = (sampled[slice] || 0) + steps.sampledTokens[row];
    },
    signal,
  );
  const until = from + slices * width;
  const hits = meanOf(slices);
  const times = { ttft: collected(slices), tpot: collected(slices), e2e: collected(slices) };
  const timed = tellsTimes(inside);
  const attempts = new Attempts(inside);
  const ended = new Array<number>(slices).fill(0);
  const cut = new Array<number>(slices).fill(0);
  const good = timed && isBounded(bounds) ? new Array<number>(slices).fill(0) : null;
  await inSlices(
    0,
    requests.count - 1,
    (request) => {
      const looked = requests.lookupRow[request];
      const prompt = requests.lookupPromptTokens[request];
      if (looked >= range.first && looked <= range.last && prompt > 0) {
        const hit = Math.max(requests.localHitTokens[request], 0) + Math.max(requests.externalHitTokens[request], 0);
        hits.add(of(steps.ts[looked]), hit / prompt, prompt);
      }
      if (attempts.goesOn(request)) return;
      const took = timesOf(store, request, attempts.firstOf(request));
      const token = requests.firstTokenTime[request];
      if (timed && token >= from && token <= until && !Number.isNaN(took.ttft)) times.ttft[of(token)].push(took.ttft);
      const row = endRowOf(inside, request);
      const end = requests.finishedTime[request];
      if (row < range.first || row > range.last || Number.isNaN(end)) return;
      const slice = of(end);
      ended[slice] += 1;
      if (isCutShort(store, request)) cut[slice] += 1;
      if (good && meets(took, bounds)) good[slice] += 1;
      if (timed && !Number.isNaN(took.tpot)) times.tpot[slice].push(took.tpot);
      if (timed && !Number.isNaN(took.e2e)) times.e2e[slice].push(took.e2e);
    },
    signal,
  );
  const together = togetherOf(ended);
  return {
    at: Array.from({ length: slices }, (_, slice) => from - originOf(store) + (slice + 0.5) * width),
    seconds: width,
    running: sums.running.result(),
    waiting: sums.waiting.result(),
    secondsOfRates: together * width,
    requestsPerSecond: rates(ended, together, width),
    cutShort: cut,
    goodPerSecond: good && rates(good, together, width),
    tokensPerSecond: Array.from(sampled, (tokens) => tokens / width),
    hitRate: hits.result(),
    ttft: percentiles(times.ttft),
    tpot: percentiles(times.tpot),
    e2e: percentiles(times.e2e),
  };
}

/** Means of each slice, by weight. */
function meanOf(slices: number) {
  const sums = new Float64Array(slices);
  const weights = new Float64Array(slices);
  return {
    add(slice: number, value: number, weight: number): void {
      sums[slice] += value * weight;
      weights[slice] += weight;
    },
    result: () => Array.from(sums, (sum, slice) => sum / weights[slice]),
  };
}

/** How many slices are counted together, so that some requests end in most: a rate of one or none tells nothing. */
function togetherOf(ended: readonly number[]): number {
  const total = ended.reduce((sum, requests) => sum + requests, 0);
  let together = 1;
  while (together < ended.length && (ended.length % together > 0 || total * together < ended.length * ENOUGH)) {
    together += 1;
  }
  return together;
}

function rates(counts: readonly number[], together: number, width: number): number[] {
  return counts.map((_, slice) => {
    const first = slice - (slice % together);
    return counts.slice(first, first + together).reduce((sum, count) => sum + count, 0) / (together * width);
  });
}

function collected(slices: number): number[][] {
  return Array.from({ length: slices }, () => []);
}

function percentiles(slices: readonly number[][]): Percentiles {
  const spreads = slices.map((values) => knownSpread(values));
  const of = (which: "p50" | "p95" | "p99") => spreads.map((one) => one?.[which] ?? Number.NaN);
  return { p50: of("p50"), p95: of("p95"), p99: of("p99") };
}
