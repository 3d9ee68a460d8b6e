import { expect, test } from "vitest";
import { marks, roundTop, timeMarks } from "./marks";

test("marks are round numbers", () => {
  expect(marks(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
  expect(marks(3, 27, 4)).toEqual([10, 20]);
  expect(marks(1, 1, 5)).toEqual([]);
});

test("marks of time are round minutes where there are many seconds", () => {
  expect(timeMarks(0, 600, 6)).toEqual([0, 120, 240, 360, 480, 600]);
  expect(timeMarks(250, 372, 5)).toEqual([270, 300, 330, 360]);
  expect(timeMarks(0, 3, 10, 1)).toEqual([0, 1, 2, 3]);
  expect(timeMarks(5, 5, 5)).toEqual([]);
});

test("the top of an axis is round and not below", () => {
  expect([0, 0.7, 1, 72, 133, 999].map(roundTop)).toEqual([1, 0.8, 1, 80, 150, 1000]);
});
