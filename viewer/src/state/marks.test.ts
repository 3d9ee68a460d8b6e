import { expect, test } from "vitest";
import { onClock, tellsTimeOfDay } from "../data/clock";
import type { TraceStore } from "../data/model/trace";
import { marksOf, marksOfFile } from "./marks";

function clocked(ts: number, clockZero: number | null = null, clockSpeed: number | null = null) {
  return { rows: 1, steps: { ts: Float64Array.of(ts) }, start: { ts, clockZero, clockSpeed } } as unknown as TraceStore;
}

test("moments of an address count from 1970 or from the beginning of the run", () => {
  const store = clocked(1_732_466_000);
  expect(marksOf("90:alert, 1732467000000:deploy, x", (value) => onClock(store, value))).toEqual([
    { ts: 1_732_466_090, end: 1_732_466_090, text: "alert" },
    { ts: 1_732_467_000, end: 1_732_467_000, text: "deploy" },
  ]);
});

test("a clock that begins at 0 tells the time of day where the header says when, at its speed", () => {
  expect(onClock(clocked(0, 1_732_466_000, 10), 1_732_466_007_500)).toBe(75);
  expect(onClock(clocked(0, 1_732_466_000), 1_732_466_007)).toBe(7);
  expect(onClock(clocked(0, 1_732_466_000, 10), 75)).toBe(75);
  expect(tellsTimeOfDay(clocked(0, 1_732_466_000, 10))).toBe(true);
  expect(tellsTimeOfDay(clocked(0))).toBe(false);
});

test("a file has a moment in each line; others are counted", () => {
  const lines = [
    '{"time": "1970-01-01T00:01:00Z", "text": "deploy"}',
    '{"time": 5, "end": 9, "text": "incident"}',
    '{"time": 5, "end": 2, "text": "turned round"}',
    '{"time": "soon", "text": "?"}',
    '{"time": 5}',
    "no JSON",
    "",
  ];
  expect(marksOfFile(lines.join("\n"))).toEqual({
    marks: [
      { ts: 60, end: 60, text: "deploy" },
      { ts: 5, end: 9, text: "incident" },
      { ts: 5, end: 5, text: "turned round" },
    ],
    bad: 3,
  });
});
