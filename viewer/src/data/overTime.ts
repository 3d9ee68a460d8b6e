/** How the run went, in slices of the clock: queues, throughput, cache hits, and how long requests took. */

import { endOfRow, secondsOf } from "./lives";
import { MISSING, type Range } from "./model/columns";
import type { OverTime, Percentiles } from "./model/overTime";
import type { TraceStore } from "./model/trace";
import { timesOf } from "./requestTimes";
import { inSlices } from "./slices";
import { spread } from "./spread";

/** Null if the trace tells no times. Rows and requests count where they begin or end; a slice without any is a gap. */
export async function overTime(
  store: TraceStore,
  range: Range,
  slices: number,
  signal?: AbortSignal,
): Promise<OverTime | null> {
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
      const { ttft, tpot, e2e } = timesOf(store, request);
      const token = requests.firstTokenTime[request];
      if (token >= from && token <= until && !Number.isNaN(ttft)) times.ttft[of(token)].push(ttft);
      const end = requests.finishedTime[request];
      if (!(end >= from && end <= until)) return;
      if (!Number.isNaN(tpot)) times.tpot[of(end)].push(tpot);
      if (!Number.isNaN(e2e)) times.e2e[of(end)].push(e2e);
    },
    signal,
  );
  return {
    at: Array.from({ length: slices }, (_, slice) => from - steps.ts[0] + (slice + 0.5) * width),
    seconds: width,
    running: sums.running.result(),
    waiting: sums.waiting.result(),
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

function collected(slices: number): number[][] {
  return Array.from({ length: slices }, () => []);
}

function percentiles(slices: readonly number[][]): Percentiles {
  const spreads = slices.map((values) => spread(Float64Array.from(values)));
  return { p50: spreads.map((one) => one?.p50 ?? Number.NaN), p95: spreads.map((one) => one?.p95 ?? Number.NaN) };
}
