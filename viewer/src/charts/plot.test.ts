import { expect, test } from "vitest";
import { keyed, nearest } from "./Plot";
import { scaleOf } from "./plotDraw";

test("the cursor goes to the closest place", () => {
  const places = [0, 1, 5, 9];
  expect([-3, 0.4, 0.6, 3.1, 6.9, 40].map((x) => nearest(places, x))).toEqual([0, 0, 1, 2, 2, 3]);
  expect(nearest([7], 100)).toBe(0);
});

test("keys stay within the chart, and others are none of its own", () => {
  expect(["ArrowRight", "ArrowLeft", "PageDown", "Home", "End", "x"].map((key) => keyed(key, 0, 100))).toEqual([
    1,
    0,
    5,
    0,
    100,
    null,
  ]);
  expect(keyed("End", 0, -1)).toBe(null);
});

test("a pixel leads back to its place, and none beyond the ends", () => {
  const { to, from } = scaleOf([10, 20, 30], 400);
  for (const place of [10, 17.5, 30]) expect(from(to(place))).toBeCloseTo(place, 9);
  expect([from(0), from(1_000)]).toEqual([10, 30]);
  const single = scaleOf([4], 400);
  expect(single.from(single.to(4))).toBe(4);
});
