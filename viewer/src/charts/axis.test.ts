import { expect, test } from "vitest";
import { hasTimes } from "../data/clock";
import type { TraceStore } from "../data/model/trace";
import { makeAxis } from "./axis";

function store(ts: number[], numbers = ts.map((_, index) => index)): TraceStore {
  return {
    rows: ts.length,
    steps: { ts: Float64Array.from(ts), number: Int32Array.from(numbers) },
  } as unknown as TraceStore;
}

test("by step, every step is equally wide, and marks carry its number", () => {
  const axis = makeAxis(store([0, 1, 5, 6], [10, 20, 30, 40]), { first: 0, last: 4 }, 800, "steps");
  expect([0, 1, 4].map(axis.rowX)).toEqual([0, 200, 800]);
  expect(axis.rowAt(500)).toBe(2.5);
  expect(axis.ticks.map((tick) => tick.text)).toEqual(["10", "20", "30", "40"]);
});

test("by time, a step is as wide as it took", () => {
  const axis = makeAxis(store([100, 101, 105, 106]), { first: 0, last: 3 }, 600, "time");
  expect([0, 1, 2, 3].map(axis.rowX)).toEqual([0, 100, 500, 600]);
  expect(axis.place(103, 1)).toBe(300);
  expect(axis.place(Number.NaN, 2)).toBe(500);
  expect(axis.ticks.map((tick) => tick.text)).toEqual(["0", "2 s", "4 s", "6 s"]);
});

test("by time, a place leads back to its row", () => {
  const axis = makeAxis(store([100, 101, 105, 106]), { first: 0, last: 4 }, 800, "time");
  for (const row of [0, 0.5, 1, 1.25, 2, 3, 3.5]) expect(axis.rowAt(axis.rowX(row))).toBeCloseTo(row, 9);
});

test("without times that rise it goes by step", () => {
  expect(hasTimes(store([Number.NaN, Number.NaN]))).toBe(false);
  expect(hasTimes(store([5, 5, 5]))).toBe(false);
  expect(makeAxis(store([5, 4, 3]), { first: 0, last: 3 }, 300, "time").kind).toBe("steps");
});

test("where there is little room, and on a clock on the wall, marks are still there, at round times", () => {
  const run = store([0, 540]);
  expect(makeAxis(run, { first: 0, last: 1 }, 200, "time").ticks.map(({ text }) => text)).toEqual([
    ...["0", "3:00", "6:00", "9:00"],
  ]);
  const began = new Date(2026, 10, 30, 14, 2, 17.5).getTime() / 1000;
  const wall = makeAxis(store([began, began + 540]), { first: 0, last: 1 }, 200, "time");
  expect(wall.ticks.map(({ text }) => text)).toEqual(["14:03", "14:06", "14:09"]);
  expect(wall.ticks[0].x).toBeCloseTo((43 / 540) * 200, 6);
});
