import { expect, test } from "vitest";
import { add, merge, readAnnotations, remove, sideFileName, writeAnnotations } from "./annotations";
import { fileName } from "./download";

const NOTE = { step: 412, text: "the pool fills up", created: "2026-01-02T03:04:05Z" };

test("what is written is read again", () => {
  const other = { step: 7, text: "<script>alert(1)</script>", created: "" };
  const text = writeAnnotations("demo", merge([NOTE], [other]));
  expect(readAnnotations(text)).toEqual({ annotations: [other, NOTE], problems: [] });
});

test("adding twice keeps one, removing takes it out, empty words are no note", () => {
  const list = add(add([], 412, " the pool fills up ", NOTE.created), 412, "the pool fills up", NOTE.created);
  expect(list).toEqual([NOTE]);
  expect(remove(list, NOTE)).toEqual([]);
  expect(add(list, 5, "   ", "")).toEqual(list);
});

test.each([
  ["not json", "not JSON"],
  ["[]", "no file of annotations"],
  ['{"format":"tokenyard-annotations"}', "no file of annotations"],
  ["null", "no file of annotations"],
])("%s is named, not thrown", (text, words) => {
  const found = readAnnotations(text);
  expect(found.annotations).toEqual([]);
  expect(found.problems[0]).toContain(words);
});

test("bad entries are counted, good ones kept, long ones cut", () => {
  const long = "x".repeat(1_000_000);
  const entries = [NOTE, { step: "7", text: "a" }, { step: 1 }, null, { step: 2, text: " " }, { step: 3, text: long }];
  const found = readAnnotations(JSON.stringify({ format: "tokenyard-annotations", version: 1, annotations: entries }));
  expect(found.annotations.map((one) => [one.step, one.text.length])).toEqual([
    [3, 4000],
    [412, 17],
  ]);
  expect(found.problems).toEqual(["4 of 6 entries were left out: they have no step or no text."]);
});

test("a file of a later version says so", () => {
  const text = JSON.stringify({ format: "tokenyard-annotations", version: 2, annotations: [NOTE] });
  expect(readAnnotations(text).problems).toEqual(["The file says version 2; this page knows version 1."]);
});

test("the side file is named after the trace, and names are safe", () => {
  expect(sideFileName("/logs/a b/sched_trace.fcfs.steps.jsonl.gz")).toBe("sched_trace.fcfs.annotations.json");
  expect(fileName("../../etc/<x>\u202e.csv")).toBe("etc_x_.csv");
  expect(fileName(`${"a".repeat(500)}.steps.csv`)).toHaveLength(120);
});
