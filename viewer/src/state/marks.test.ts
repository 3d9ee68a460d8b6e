import { expect, test } from "vitest";
import { marksOf, marksOfFile } from "./marks";

test("moments of an address count from 1970 or from the beginning of the run", () => {
  expect(marksOf("90:alert, 1732467000000:deploy, x", 1_732_466_000)).toEqual([
    { ts: 1_732_466_090, end: 1_732_466_090, text: "alert" },
    { ts: 1_732_467_000, end: 1_732_467_000, text: "deploy" },
  ]);
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
