import { expect, test } from "vitest";
import { exportRanges, rowsIn } from "./ranges";

test("without a filter it is the selection", () => {
  expect(exportRanges(null, { first: 3, last: 9 })).toEqual([{ first: 3, last: 9 }]);
  expect(exportRanges(null, null)).toEqual([]);
});

test("neighbours become one range, and the selection cuts", () => {
  const found = exportRanges(Int32Array.of(1, 2, 3, 7, 8, 11, 12), { first: 2, last: 11 });
  expect(found).toEqual([
    { first: 2, last: 3 },
    { first: 7, last: 8 },
    { first: 11, last: 11 },
  ]);
  expect(rowsIn(found)).toBe(5);
});

test("a filter that nothing passes exports nothing", () => {
  expect(exportRanges(new Int32Array(0), { first: 0, last: 99 })).toEqual([]);
});
