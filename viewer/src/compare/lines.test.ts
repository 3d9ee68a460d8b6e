import { expect, test } from "vitest";
import { MISSING } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { joined, lineOf } from "./lines";

const store = {
  rows: 4,
  steps: {
    number: Int32Array.of(10, 11, 11, 13),
    ts: Float64Array.of(5, 6, 7, 9),
    freeBlocks: Int32Array.of(100, 50, 50, MISSING),
    totalBlocks: Int32Array.of(100, 100, 100, 100),
    numRunning: Int32Array.of(1, 2, 3, 4),
  },
} as unknown as TraceStore;

test("by step, a doubled number is drawn once", () => {
  expect(lineOf(store, null, "running", "step", 100)).toEqual({ x: [10, 11, 13], y: [1, 2, 4] });
});

test("by time, runs begin together, and KV use is a share", () => {
  expect(lineOf(store, null, "kv", "time", 100)).toEqual({ x: [0, 1, 2, 4], y: [0, 50, 50, Number.NaN] });
});

test("two lines share an axis", () => {
  expect(joined({ x: [0, 2], y: [1, Number.NaN] }, { x: [1, 2, 3], y: [5, 6, 7] })).toEqual([
    [0, 1, 2, 3],
    [1, null, null, null],
    [null, 5, 6, 7],
  ]);
});
