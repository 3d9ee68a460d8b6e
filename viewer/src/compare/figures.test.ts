import { expect, test } from "vitest";
import { figureRow } from "./figures";

test("less time is better, more throughput is better", () => {
  expect(figureRow({ label: "TTFT mean", unit: "ms", a: 400, b: 300, lessIsBetter: true })).toEqual({
    label: "TTFT mean",
    a: "400.0 ms",
    b: "300.0 ms",
    difference: "−100.0 ms",
    relative: "−25.0 %",
    verdict: "better",
  });
  expect(figureRow({ label: "throughput", unit: "1/s", a: 2, b: 1, lessIsBetter: false }).verdict).toBe("worse");
});

test("lower bounds say so and are not compared", () => {
  const figure = { label: "TTFT, p99", unit: "ms", a: 400, b: 300, lessIsBetter: true, atLeast: [true, false] };
  const row = figureRow(figure);
  expect([row.a, row.b, row.difference, row.verdict]).toEqual(["≥400.0 ms", "300.0 ms", "", ""]);
});

test("percentages differ in percentage points", () => {
  const row = figureRow({ label: "peak KV use", unit: "%", a: 50, b: 62.5, lessIsBetter: null });
  expect([row.difference, row.relative, row.verdict]).toEqual(["+12.5 pp", "", ""]);
});

test("means keep two decimals, counts none", () => {
  expect(figureRow({ label: "running", unit: "", a: 4.94, b: 7.8, lessIsBetter: null }).difference).toBe("+2.86");
  expect(figureRow({ label: "rate", unit: "1/s", a: 0.95, b: 0.97, lessIsBetter: false }).b).toBe("0.97 1/s");
});

test("what one of them does not tell has no difference", () => {
  const row = figureRow({ label: "preemptions", unit: "", a: null, b: 3, lessIsBetter: true });
  expect([row.a, row.b, row.difference, row.verdict]).toEqual(["–", "3", "–", ""]);
});

test("from nothing to something has no percentage, and equal is neither", () => {
  const some = figureRow({ label: "preemptions", unit: "", a: 0, b: 3, lessIsBetter: true });
  expect([some.difference, some.relative, some.verdict]).toEqual(["+3", "", "worse"]);
  const equal = figureRow({ label: "steps", unit: "", a: 7, b: 7, lessIsBetter: null });
  expect([equal.difference, equal.relative, equal.verdict]).toEqual(["±0", "", ""]);
});

test("a row has one unit, and its difference is that of what is shown", () => {
  const row = figureRow({ label: "Queue time, mean", unit: "ms", a: 20_774, b: 21_676, lessIsBetter: true });
  expect([row.a, row.b, row.difference, row.relative]).toEqual(["20.77 s", "21.68 s", "+0.91 s", "+4.3 %"]);
  const time = figureRow({ label: "Time", unit: "s", a: 505.7, b: 450.0, lessIsBetter: true });
  expect([time.a, time.b, time.difference]).toEqual(["8 min 26 s", "7 min 30 s", "−56 s"]);
  const hits = figureRow({ label: "hits", unit: "%", a: 34.36, b: 39.24, lessIsBetter: false });
  expect([hits.a, hits.b, hits.difference]).toEqual(["34.4 %", "39.2 %", "+4.8 pp"]);
});
