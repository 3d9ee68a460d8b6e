import { expect, test } from "vitest";
import { marks } from "./marks";

test("marks are round numbers", () => {
  expect(marks(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
  expect(marks(3, 27, 4)).toEqual([10, 20]);
  expect(marks(1, 1, 5)).toEqual([]);
});
