import { expect, test } from "vitest";
import { MISSING } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { overTime } from "./overTime";

const NO_BOUNDS = { ttft: null, tpot: null, e2e: null };

/** Two steps of one second, then one of two; one request that arrives at 0, has a token after 1 s, ends after 4 s. */
const store = {
  version: 0,
  rows: 3,
  livesRecorded: true,
  finishReasons: ["stop"],
  steps: {
    number: Int32Array.of(0, 1, 2),
    ts: Float64Array.of(10, 11, 12),
    completedTs: Float64Array.of(11, 12, 14),
    numRunning: Int32Array.of(1, 3, 5),
    numWaiting: Int32Array.of(0, 2, MISSING),
    sampledTokens: Int32Array.of(4, 6, 8),
  },
  requests: {
    count: 1,
    ids: ["one"],
    arrivalTime: Float64Array.of(10),
    firstScheduledTime: Float64Array.of(10),
    firstTokenTime: Float64Array.of(11),
    finishedTime: Float64Array.of(14),
    finishedRow: Int32Array.of(2),
    outputTokens: Int32Array.of(4),
    finishReason: Int32Array.of(0),
    lookupRow: Int32Array.of(0),
    lookupPromptTokens: Int32Array.of(200),
    localHitTokens: Int32Array.of(50),
    externalHitTokens: Int32Array.of(MISSING),
  },
} as unknown as TraceStore;

test("queues, tokens, hits and times fall into the slices in which they happened", async () => {
  const found = await overTime(store, { first: 0, last: 2 }, 2, NO_BOUNDS);
  expect(found?.at).toEqual([1, 3]);
  expect(found?.running).toEqual([2, 5]);
  expect(found?.waiting).toEqual([1, Number.NaN]);
  expect(found?.tokensPerSecond).toEqual([5, 4]);
  expect(found?.requestsPerSecond).toEqual([0.25, 0.25]);
  expect(found?.secondsOfRates).toBe(4);
  expect(found?.goodPerSecond).toBe(null);
  expect(found?.hitRate).toEqual([0.25, Number.NaN]);
  expect(found?.ttft.p95).toEqual([1, Number.NaN]);
  expect(found?.tpot.p50).toEqual([Number.NaN, 1]);
  expect(found?.e2e.p50).toEqual([Number.NaN, 4]);
});

test("goodput counts those that met every bound, where they ended", async () => {
  const within = async (tpot: number) =>
    (await overTime(store, { first: 0, last: 2 }, 2, { ttft: 1000, tpot, e2e: null }))?.goodPerSecond;
  expect(await within(1000)).toEqual([0.25, 0.25]);
  expect(await within(999)).toEqual([0, 0]);
});

test("without times there is nothing to show", async () => {
  const timeless = { ...store, steps: { ...store.steps, ts: Float64Array.of(Number.NaN, Number.NaN, Number.NaN) } };
  expect(await overTime(timeless as unknown as TraceStore, { first: 0, last: 2 }, 2, NO_BOUNDS)).toBe(null);
});
