import { expect, test } from "vitest";
import { frameOf, nearest, placeAt, xOf, yOf } from "./plotFrame";

const frame = frameOf(
  [
    [10, 20, 30],
    [1, null, 8],
  ],
  478,
  136,
);

test("the first and the last place lie at the ends, zero at the bottom, the largest value at the top", () => {
  expect([10, 20, 30].map((place) => xOf(frame, place))).toEqual([62, 262, 462]);
  expect([0, 4, 8].map((value) => yOf(frame, value))).toEqual([110, 60, 10]);
});

test("a top that is asked for is a lower bound", () => {
  expect(frameOf([[1], [5]], 100, 100, 20).highest).toBe(20);
  expect(frameOf([[1], [null]], 100, 100).highest).toBe(1);
});

test("a single place lies in the middle", () => {
  const one = frameOf([[7], [1]], 478, 136);
  expect(xOf(one, 7)).toBe(262);
});

test("pixels lead back to places, and stay within them", () => {
  expect(placeAt(frame, 262)).toBe(20);
  expect([0, 1000].map((x) => placeAt(frame, x))).toEqual([10, 30]);
});

test("the nearest place is found", () => {
  expect([-5, 14, 16, 21, 99].map((wanted) => nearest([10, 20, 30], wanted))).toEqual([0, 0, 1, 1, 2]);
  expect(nearest([], 3)).toBe(-1);
});
