import { expect, test } from "vitest";
import { MISSING } from "../data/model/columns";
import type { Spread, Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { parseFilter } from "../state/filter";
import { figures, figureText, latencies, notes } from "./figures";
import { disagreement, reason, shares, within } from "./filters";

const NO_BOUNDS = { ttft: null, tpot: null, e2e: null };

/** No offload tier. */
const NOTHING = new Int32Array(100).fill(MISSING);

const store = {
  rows: 100,
  steps: {
    number: Int32Array.from({ length: 100 }, (_, row) => row + 1000),
    cpuFreeBlocks: NOTHING,
    cpuTotalBlocks: NOTHING,
  },
} as unknown as TraceStore;

function spread(mean: number): Spread {
  return { mean, p50: mean, p90: mean * 2, p95: mean * 2.5, p99: mean * 3, max: mean * 4 };
}

function found(change: Partial<Statistics> = {}): Statistics {
  return {
    range: { first: 0, last: 99 },
    steps: 100,
    seconds: 12.5,
    prefixHits: { localTokens: 250, externalTokens: 0, promptTokens: 1000 },
    overTime: { running: 15.5, waiting: null },
    drafts: null,
    ends: [
      { reason: "length", requests: 4 },
      { reason: "abort", requests: 3 },
    ],
    itlSeconds: null,
    running: spread(12.4),
    waiting: null,
    peakKvUse: 0.98765,
    preemptions: 3,
    recomputedTokens: null,
    finished: 7,
    outcomes: { arrived: 8, served: 4, refused: 0, cancelled: 3, unfinished: 1 },
    requestsPerSecond: 0.56,
    tokensPerSecond: null,
    queueSeconds: spread(0.5),
    ttftSeconds: null,
    tpotSeconds: null,
    e2eSeconds: null,
    open: [],
    warmup: null,
    ...change,
  } as unknown as Statistics;
}

test("one line per figure, as it is pasted", () => {
  expect(figures(store, found(), NO_BOUNDS).map(figureText)).toEqual([
    "steps: 100, over 12.5 s",
    "running: mean over time 15.5, mean over steps 12.4, p50 12, p95 31, max 50",
    "waiting: –",
    "peak KV use: 98.8 %",
    "preemptions: 3",
    "prefix hits: local 25.0 %, external 0.0 %",
    "requests: 8 arrived, 4 served, 3 cancelled, 1 unfinished, length 4, abort 3",
    "throughput: 0.56 requests/s",
  ]);
});

test("figures lead to filters that the filter language understands", () => {
  const filters = figures(store, found({ range: { first: 10, last: 20 } }), NO_BOUNDS).flatMap((figure) =>
    figure.parts.flatMap((part) => part.filter ?? []),
  );
  expect(filters).toContain("preempted:1.. step:1010..1020");
  expect(filters).toContain("kv:98.7.. step:1010..1020");
  for (const text of filters) expect(parseFilter(text).problems).toEqual([]);
});

test("an offload tier has a peak of its own, within the range", () => {
  const steps = { ...store.steps, cpuFreeBlocks: NOTHING.slice(), cpuTotalBlocks: new Int32Array(100).fill(50) };
  steps.cpuFreeBlocks.set([50, 20, 35], 10);
  const tiered = { ...store, steps } as TraceStore;
  const line = (first: number, last: number) =>
    figures(tiered, found({ range: { first, last } }), NO_BOUNDS)
      .map(figureText)
      .find((text) => text.startsWith("peak DRAM"));
  expect(line(0, 99)).toBe("peak DRAM use: 60.0 %");
  expect(line(12, 99)).toBe("peak DRAM use: 30.0 %");
});

test("goodput is a figure once a latency is bounded", () => {
  const times = { queue: [0, 0], ttft: [0.1, 0.2], tpot: [Number.NaN, 0.01], e2e: [0.1, 1] };
  const lines = figures(store, found({ ttftSeconds: spread(0.15), times }), { ttft: 150, tpot: null, e2e: null }).map(
    figureText,
  );
  expect(lines.at(-1)).toBe("goodput within TTFT ≤ 150 ms: 0.08 requests/s, 50.0 % of those that arrived");
  const open = [{ queue: 1, ttft: 0.1, tpot: 0, e2e: 2 }];
  const some = figures(store, found({ ttftSeconds: spread(0.15), times, open }), { ttft: 150, tpot: null, e2e: null });
  expect(some.map(figureText).at(-1)).toMatch(/arrived, 1 more still may be$/);
});

test("nothing leads nowhere", () => {
  const none = figures(store, found({ preemptions: 0, finished: 0, peakKvUse: null }), NO_BOUNDS);
  const filters = none.flatMap(({ label, parts }) => parts.flatMap((part) => (part.filter ? [label] : [])));
  expect(filters).toEqual(["steps", "running", "running", "running", "prefix hits"]);
});

test("latencies are there if one of them is known", () => {
  expect(latencies(found()).map(({ name, values }) => [name, values[0], ...values.slice(3)])).toEqual([
    ["queue", "500.0 ms", "1.25 s", "1.50 s", "2.00 s"],
    ["TTFT", "–", "–", "–", "–"],
    ["TPOT", "–", "–", "–", "–"],
    ["ITL", "–", "–", "–", "–"],
    ["E2E", "–", "–", "–", "–"],
  ]);
  expect(latencies(found({ queueSeconds: null }))).toEqual([]);
});

test("a figure that requests can still raise is a lower bound, and a note says why", () => {
  const open = found({ queueSeconds: { ...spread(0.5), atLeast: ["p99", "max"] } });
  expect(latencies(open)[0].values).toEqual(["500.0 ms", "500.0 ms", "1.00 s", "1.25 s", "≥1.50 s", "≥2.00 s"]);
  expect(notes(open)).toEqual([
    "Figures are of all 8 requests that arrived; 4 were served. The others count by how long they had waited: ≥ is a lower bound.",
  ]);
  expect(notes(found())).toEqual([]);
  expect(notes(found({ warmup: 5 }))).toEqual([
    "What arrived, and was decided, in the warm-up of 5.00 s does not count.",
  ]);
});

test("a bound of nothing is a dash with its reason, and what never comes is told so", () => {
  const few = found({ tpotSeconds: { ...spread(0), max: 0.3, atLeast: ["p50", "max"], unbounded: 5 } });
  expect(latencies(few)[2].values).toEqual(["0.00 ms", "–", "0.00 ms", "0.00 ms", "0.00 ms", "≥300.0 ms"]);
  expect(notes(few)).toContain("No bound on TPOT: 5 of 8 requests have no first token, or no limit of tokens.");
  const outcomes = { arrived: 8, served: 0, refused: 8, cancelled: 0, unfinished: 0 };
  const refused = latencies(found({ queueSeconds: null, outcomes }));
  expect(refused.map(({ values }) => values[0])).toEqual(["never", "never", "never", "–", "never"]);
});

test("bars of a histogram lead to their own steps, selections to steps inside", () => {
  expect(shares("budget", 8, 20)).toBe("budget:40..45");
  expect(shares("hit", 9, 10)).toBe("hit:90..100");
  expect(within(store, { first: 0, last: 99 })).toBe("");
  expect(parseFilter(reason('odd "name" of mine')).terms[0].value).toBe("odd name of mine");
  expect(parseFilter(disagreement("alloc-frag", "kv_blocks")).terms[0]).toMatchObject({
    key: "disagree",
    value: "alloc-frag/kv_blocks",
  });
});
