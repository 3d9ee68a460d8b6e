import { expect, test } from "vitest";
import type { Statistics } from "./model/statistics";
import { goodput, meets } from "./slo";
import { knownSpread } from "./spread";

const unknown = Number.NaN;
const none = { ttft: null, tpot: null, e2e: null };

test("a bound is met at its very value, and every bound has to be", () => {
  const times = { ttft: 0.5, tpot: 0.04, e2e: 3 };
  expect(meets(times, { ttft: 500, tpot: 40, e2e: 3000 })).toBe(true);
  expect(meets(times, { ttft: 500, tpot: 39.9, e2e: null })).toBe(false);
  expect(meets(times, { ttft: 499, tpot: 40, e2e: null })).toBe(false);
});

test("an answer of one token has no TPOT to miss; an aborted request meets nothing", () => {
  expect(meets({ ttft: 0.1, tpot: unknown, e2e: 0.1 }, { ...none, tpot: 1 })).toBe(true);
  expect(meets({ ttft: 0.1, tpot: unknown, e2e: unknown }, { ...none, ttft: 500 })).toBe(false);
  expect(meets({ ttft: unknown, tpot: unknown, e2e: 2 }, { ...none, e2e: 5000 })).toBe(false);
});

test("goodput is of all that arrived, and nothing without a bound or without times", () => {
  const times = {
    queue: [0, 0, 0, 0],
    ttft: [0.1, 0.2, 0.9, 0.1],
    tpot: [0.01, 0.02, 0.01, unknown],
    e2e: [1, 2, 3, unknown],
  };
  const found = { times, seconds: 8, ttftSeconds: knownSpread(times.ttft) } as unknown as Statistics;
  expect(goodput(found, { ...none, ttft: 500 })).toEqual({ requests: 2, share: 0.5, requestsPerSecond: 0.25 });
  expect(goodput(found, none)).toBe(null);
  const empty = { times: { queue: [], ttft: [], tpot: [], e2e: [] }, seconds: 8 } as unknown as Statistics;
  expect(goodput(empty, { ...none, ttft: 500 })).toBe(null);
});
