import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { embedded } from "./embedded";
import type { TraceSource } from "./model/sources";

const NAMES = { name: "run", steps: "run.steps.jsonl", requests: "run.requests.jsonl" };
const page = (text: string) => ` \n${gzipSync(text).toString("base64")}\n`;
const textOf = async (source: TraceSource | null | undefined) =>
  source?.kind === "file" ? source.file.text() : undefined;

test.each([
  ["both", '{"a":1}\n{"b":2}\n', '{"c":3}\n'],
  ["a separator inside of a line", '{"a":"\u001e"}\n\u001ex\n', "{}\n"],
  ["no steps", "", "{}\n"],
  // Pieces of the unpacked stream end somewhere in it: this one has thousands of lines at which that may be.
  ["long ones", '{"event":"step"}\n'.repeat(400_000), '{"req_id":"r"}\n'.repeat(300_000)],
])("%s", async (_, steps, requests) => {
  const files = await embedded(page(`${steps}\u001e\n${requests}`), NAMES);
  const whole = files.whole ? await files.whole : files.steps;
  expect(await textOf(whole)).toBe(steps);
  expect(await textOf(await files.rest)).toBe(requests);
});

test("the beginning of long steps is there before the rest is unpacked", async () => {
  const line = `{"event":"step_snapshot","pad":"${"x".repeat(300)}"}\n`;
  const steps = line.repeat(150_000);
  const files = await embedded(page(steps), NAMES);
  const begun = (await textOf(files.steps)) ?? "";
  expect(begun.length).toBeGreaterThan(1 << 20);
  expect(begun.length).toBeLessThan(steps.length / 2);
  expect(steps.startsWith(begun)).toBe(true);
  expect(await textOf(await files.whole)).toBe(steps);
  expect(await files.rest).toBe(null);
});

test("one file alone", async () => {
  const files = await embedded(page("{}\n"), NAMES);
  expect(files).toMatchObject({ requests: null, name: "run" });
  expect(await files.rest).toBe(null);
  const alone = await embedded(page("{}\n"), { ...NAMES, steps: "run.requests.jsonl" });
  expect(alone.steps).toBeNull();
  expect(await textOf(alone.requests)).toBe("{}\n");
});

test("what is damaged is said", async () => {
  await expect(embedded("H4sIAAAAAAAAA6tW", NAMES)).rejects.toThrow();
  const packed = gzipSync(
    Array.from({ length: 900_000 }, (_, i) => `{"event":"step_snapshot","step":${i}}\n`).join(""),
  );
  const files = await embedded(packed.subarray(0, packed.length - 1000).toString("base64"), NAMES);
  await expect(files.whole ?? Promise.resolve()).rejects.toThrow();
});
