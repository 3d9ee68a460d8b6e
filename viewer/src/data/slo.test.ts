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
  const open = [0.3, 0.6].map((ttft) => ({ queue: 0, ttft, tpot: 0, e2e: ttft }));
  const outcomes = { arrived: 4, served: 3, refused: 0, cancelled: 0, unfinished: 1 };
  const found = { times, open, outcomes, seconds: 8, ttftSeconds: knownSpread(times.ttft) } as unknown as Statistics;
  const met = { requests: 2, share: 0.5, requestsPerSecond: 0.25 };
  expect(goodput(found, { ...none, ttft: 500 })).toEqual({ ...met, open: 1 });
  expect(goodput(found, { ...none, ttft: 800 })).toMatchObject({ ...met, open: 2 });
  const gone = { times: { ...times, ttft: times.ttft.map(() => unknown) }, open: [], outcomes, ttftSeconds: null };
  expect(goodput(gone as unknown as Statistics, { ...none, ttft: 500 })).toBe(null);
  const refused = { ...gone, outcomes: { ...outcomes, refused: 4 } } as unknown as Statistics;
  expect(goodput(refused, { ...none, ttft: 500 })).toMatchObject({ requests: 0, share: 0 });
  expect(goodput(found, none)).toBe(null);
  const nothing = { queue: [], ttft: [], tpot: [], e2e: [] };
  const empty = { times: nothing, open: [], outcomes: { refused: 0 }, seconds: 8 } as unknown as Statistics;
  expect(goodput(empty, { ...none, ttft: 500 })).toBe(null);
});
