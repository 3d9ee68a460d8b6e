import { afterEach, expect, test } from "vitest";
import { boundOf, bounds, boundsText } from "./bounds";
import { readHash, writeHash } from "./hash";
import { extra } from "./store";

afterEach(() => {
  extra.value = {};
});

test("a bound is a time above 0, in milliseconds if it has no unit", () => {
  expect(["500", " 0.5 ", "1e3"].map(boundOf)).toEqual([500, 0.5, 1000]);
  expect(["500ms", "5s", " 2.3 s ", "1 min", "0s"].map(boundOf)).toEqual([500, 5000, 2300, 60_000, null]);
  for (const text of [undefined, "", " ", "0", "-5", "soon", "1e999", "0,5"]) expect(boundOf(text)).toBe(null);
});

test("bounds go through the address under keys of their own", () => {
  const read = readHash("tab=statistics&slo-ttft=500&slo-e2e=abc");
  extra.value = read.extra;
  expect(bounds.value).toEqual({ ttft: 500, tpot: null, e2e: null });
  expect(boundsText(bounds.value)).toBe("TTFT ≤ 500 ms");
  expect(boundsText({ ttft: null, tpot: 0.5, e2e: 2500 })).toBe("TPOT ≤ 0.5 ms, E2E ≤ 2.5 s");
  expect(writeHash(read)).toBe("tab=statistics&slo-ttft=500&slo-e2e=abc");
});

test("bounds stay the same object when something else of the address changes", () => {
  extra.value = { "slo-ttft": "500" };
  const before = bounds.value;
  extra.value = { "slo-ttft": "500", zoom: "1-2" };
  expect(bounds.value).toBe(before);
  extra.value = { "slo-ttft": "600", zoom: "1-2" };
  expect(bounds.value).toEqual({ ttft: 600, tpot: null, e2e: null });
});
