import { expect, test } from "vitest";
import { MISSING } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { parseFilter } from "./filter";
import { findMatches } from "./matching";
import { type Measure, measureTest } from "./measures";

function store(): TraceStore {
  return {
    rows: 4,
    steps: {
      number: Int32Array.of(0, 1, 2, 3),
      tokenSum: Int32Array.of(0, 820, 2048, MISSING),
      tokenBudget: Int32Array.of(2048, 2048, 2048, 2048),
      freeBlocks: Int32Array.of(100, 50, 0, MISSING),
      totalBlocks: Int32Array.of(100, 100, 100, 100),
      numRunning: Int32Array.of(0, 12, 13, 12),
      numWaiting: Int32Array.of(5, 0, MISSING, 1),
      numPreempted: Int32Array.of(0, 0, 2, 0),
      outcome: Int32Array.of(-1, 0, 1, -1),
      bucket: Uint8Array.of(8, 3, 2, 3),
      stepReason: Uint8Array.of(255, 7, 4, 7),
      shown: Uint8Array.of(0, 1, 1, 1),
    },
    outcomes: { mainReason: Int32Array.of(1, 0) },
    reasonNames: ["max_num_seqs", "kv_blocks"],
    requests: {
      count: 3,
      lookupRow: Int32Array.of(1, 2, -1),
      lookupPromptTokens: Int32Array.of(100, 100, 100),
      localHitTokens: Int32Array.of(90, 0, 50),
      externalHitTokens: Int32Array.of(10, MISSING, 0),
      finishedTime: Float64Array.of(1, 2, Number.NaN),
      lastRow: Int32Array.of(1, 2, 3),
      finishedRow: Int32Array.of(2, -1, -1),
    },
  } as unknown as TraceStore;
}

test.each<[Measure, number, number, number[]]>([
  ["budget", 40, 45, [1]],
  ["budget", 95, 100, [2]],
  ["budget", 0, 40, [0]],
  ["kv", 50, 100, [1, 2]],
  ["kv", 0, 50, [0]],
  ["hit", 90, 100, [1]],
  ["hit", 0, 10, [2]],
  ["running", 12, 12, [1, 3]],
  ["running", 13, Number.POSITIVE_INFINITY, [2]],
  ["waiting", 0, 1, [1, 3]],
  ["preempted", 1, Number.POSITIVE_INFINITY, [2]],
  ["finished", 2, 2, [2]],
])("%s %d..%d", (measure, from, to, rows) => {
  const passes = measureTest(store(), measure, { from, to });
  expect([0, 1, 2, 3].filter(passes)).toEqual(rows);
});

test.each([
  ["bucket:alloc-frag", [1, 3]],
  ["bucket:alloc-frag -step:3", [1]],
  ["disagree:alloc-frag/kv_blocks", [1]],
  ["disagree:alloc-frag/max_num_seqs", []],
  ["budget:40..45 bucket:alloc-frag", [1]],
  ["running:12 running:13..", [1, 2, 3]],
])("the filter %s", async (text, rows) => {
  const found = await findMatches(store(), parseFilter(text), new AbortController().signal);
  expect([...(found.rows ?? [])]).toEqual(rows);
});

test("a number that is none is named", () => {
  const filter = parseFilter("budget:lots running:1..2 budget:99.5..");
  expect(filter.problems).toEqual([
    "budget:lots is not understood. Write budget:40, budget:40..45, budget:40.. or budget:..45",
  ]);
  expect(filter.terms.map(({ key, from, to }) => [key, from, to])).toEqual([
    ["running", 1, 2],
    ["budget", 99.5, Number.POSITIVE_INFINITY],
  ]);
});
