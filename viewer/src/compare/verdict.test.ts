import { expect, test } from "vitest";
import type { Entry } from "./faster";
import { changeText, verdictOf, workloadsDiffer } from "./verdict";

const NONE = { ttft: null, tpot: null, e2e: null };
const entries = (...pairs: [a: number, b: number][]): Entry[] =>
  pairs.map(([a, b], at) => ({
    id: `${at}`,
    a: { ttft: a, tpot: Number.NaN, e2e: a + 1, waited: 0 },
    b: { ttft: b, tpot: Number.NaN, e2e: b + 1, waited: 0 },
    alike: true,
    whole: true,
  }));

test("a better median does not hide a worse tail", () => {
  const many = Array.from({ length: 98 }, (): [number, number] => [10, 1]);
  const told = verdictOf(entries(...many, [60, 130], [70, 140]), NONE);
  expect(told?.winner).toBe("B is faster in the middle, but its tail is slower");
  expect(told?.changes.map(({ name, sign }) => `${name} ${sign}`)).toEqual([
    "TTFT p50 -1",
    "TTFT p99 1",
    "E2E p50 -1",
    "E2E p99 1",
  ]);
  expect(changeText(told?.changes[1] as never)).toMatch(/^TTFT p99 \+1\d\d\.\d % \(60\.1\d* s to 130\.1\d* s\)$/);
});

test("one of the two is faster only if nothing speaks against it", () => {
  expect(verdictOf(entries([2, 1], [3, 2]), NONE)?.winner).toBe("B is faster, in the middle and in the tail");
  expect(verdictOf(entries([1, 2], [2, 3]), NONE)?.winner).toBe("A is faster, in the middle and in the tail");
  expect(verdictOf(entries([2, 2]), NONE)?.winner).toBe("A and B take equally long");
  expect(verdictOf([], NONE)).toBeNull();
});

test("the user's bounds decide", () => {
  const told = verdictOf(entries([1, 6], [9, 6], [9, 4]), { ...NONE, ttft: 5_000 });
  expect(told?.goodput).toEqual({ a: 1 / 3, b: 1 / 3 });
  expect(told?.winner).toBe("A and B meet the bounds for equally many requests");
  expect(verdictOf(entries([9, 4], [9, 4]), { ...NONE, ttft: 5_000 })?.winner).toBe(
    "B meets the bounds for more requests: 100.0 % against 0.0 %",
  );
});

test("other requests of the same name are no reason to judge", () => {
  expect(workloadsDiffer({ same: 3, other: 0, example: null })).toBeNull();
  expect(workloadsDiffer({ same: 0, other: 74, example: "x: 221 in A, 345 in B" })).toMatch(
    /^These are different workloads: none of the 74 /,
  );
  expect(workloadsDiffer({ same: 2, other: 1, example: null })).toMatch(/^Of the 3 requests .* 1 are other requests/);
});
