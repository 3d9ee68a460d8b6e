import { describe, expect, it } from "vitest";
import { axisOf } from "./axis";

describe("axis", () => {
  it("is the rows themselves without a filter", () => {
    const axis = axisOf(10, null);
    expect([axis.count, axis.rowAt(3.7), axis.toPlace(2.5), axis.toRow(9.5)]).toEqual([10, 3, 2.5, 9.5]);
  });

  it("closes the gaps of a filter", () => {
    const axis = axisOf(100, Int32Array.of(10, 20, 21, 90));
    expect(axis.count).toBe(4);
    expect([0, 1, 2, 3].map((place) => axis.rowAt(place))).toEqual([10, 20, 21, 90]);
    expect(axis.toPlace(20)).toBe(1);
    expect(axis.toPlace(15)).toBe(0.5);
    expect(axis.toRow(0.5)).toBe(15);
  });

  it("goes there and back, and never backwards", () => {
    const axis = axisOf(1000, Int32Array.of(0, 1, 5, 400, 401, 998, 999));
    let before = -1;
    for (let place = 0; place <= axis.count - 1; place += 0.25) {
      const row = axis.toRow(place);
      expect(axis.toPlace(row)).toBeCloseTo(place, 9);
      expect(row).toBeGreaterThan(before);
      before = row;
    }
  });

  it("survives a filter that lets nothing through", () => {
    const axis = axisOf(10, new Int32Array(0));
    expect([axis.count, axis.toPlace(5), axis.toRow(2)]).toEqual([0, 0, 0]);
  });
});
