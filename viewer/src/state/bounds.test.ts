import { expect, test } from "vitest";
import { boundOf, bounds, boundsText } from "./bounds";
import { readHash, writeHash } from "./hash";
import { extra } from "./store";

test("a bound is a number of milliseconds above 0", () => {
  expect(["500", " 0.5 ", "1e3"].map(boundOf)).toEqual([500, 0.5, 1000]);
  for (const text of [undefined, "", " ", "0", "-5", "soon", "1e999", "0,5"]) expect(boundOf(text)).toBe(null);
});

test("bounds go through the address under keys of their own", () => {
  const read = readHash("tab=statistics&slo-ttft=500&slo-e2e=abc");
  extra.value = read.extra;
  expect(bounds.value).toEqual({ ttft: 500, tpot: null, e2e: null });
  expect(boundsText(bounds.value)).toBe("TTFT ≤ 500 ms");
  expect(writeHash(read)).toBe("tab=statistics&slo-ttft=500&slo-e2e=abc");
});
