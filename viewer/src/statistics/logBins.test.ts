import { expect, test } from "vitest";
import { logBins, placeOn } from "./logBins";

test("bins grow by 1, 2, 5 and hold every value", () => {
  const found = logBins([0.012, 0.03, 0.03, 0.09, 0.4]);
  expect(found?.edges.map((edge) => Number(edge.toPrecision(6)))).toEqual([0.01, 0.02, 0.05, 0.1, 0.2, 0.5]);
  expect(found?.counts).toEqual([1, 2, 1, 0, 1]);
});

test("a place on the scale is within its bin", () => {
  const found = logBins([1, 9]);
  if (!found) throw new Error("there are values");
  expect(found.edges).toEqual([1, 2, 5, 10]);
  expect(placeOn(found, 1)).toBe(0);
  expect(placeOn(found, 2)).toBeCloseTo(1 / 3);
  expect(placeOn(found, 10)).toBeCloseTo(1);
});

test("no time at all is no histogram", () => expect(logBins([0, 0])).toBe(null));
