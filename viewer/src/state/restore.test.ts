import { expect, test } from "vitest";
import type { TraceStore } from "../data/model/trace";
import { placeOf, stepAt } from "./restore";

const store = {
  rows: 4,
  ordered: true,
  steps: { number: Int32Array.of(10, 11, 15, 16) },
} as unknown as TraceStore;

test("a place is written down and read again without moving, however often", () => {
  for (const place of [0, 0.4, 1.25, 2.999, 3, 3.5, 4, 9.75]) {
    const written = stepAt(store, place);
    expect(placeOf(store, written)).toBeCloseTo(place, 3);
    expect(stepAt(store, placeOf(store, written))).toBe(written);
  }
});

test("a step that is not there leads to its neighbour", () => expect(placeOf(store, 12.5)).toBe(1));
