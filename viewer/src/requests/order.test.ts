import { expect, test } from "vitest";
import type { Lanes } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";
import { type Order, orderLanes } from "./order";

/** Lane 0: job "b10" with requests 0 and 2; lane 1: request 1 of no job; lane 2: job "b9" with request 3. */
const store = {
  jobs: { count: 2, ids: ["b10", "b9"] },
  requests: { count: 4, ids: ["b10_t0", "alone", "b10_t1", "b9_t0"], job: Int32Array.of(0, -1, 0, 1) },
} as unknown as TraceStore;
const lanes = {
  count: 3,
  job: Int32Array.of(0, -1, 1),
  request: Int32Array.of(-1, 1, -1),
  waited: Float64Array.of(0.5, Number.NaN, 7.25),
  firstRow: Int32Array.of(0, 2, 3),
  lastRow: Int32Array.of(9, 40, 12),
} as unknown as Lanes;

test.each<[Order, number[]]>([
  ["arrival", [0, 1, 2]],
  ["wait", [2, 0, 1]],
  ["length", [1, 0, 2]],
  ["id", [1, 2, 0]],
])("by %s", (order, expected) => expect([...orderLanes(store, lanes, order, null)]).toEqual(expected));

test("a filter keeps the lanes of the requests that it means", () => {
  expect([...orderLanes(store, lanes, "arrival", Uint8Array.of(0, 1, 1, 0))]).toEqual([0, 1]);
  expect([...orderLanes(store, lanes, "wait", Uint8Array.of(0, 0, 0, 0))]).toEqual([]);
});

test("lanes of equal wait stay in order of arrival", () => {
  const many = { ...lanes, count: 3, waited: Float64Array.of(1, 1, 1) } as Lanes;
  expect([...orderLanes(store, many, "wait", null)]).toEqual([0, 1, 2]);
});
