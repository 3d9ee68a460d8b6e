import { describe, expect, it } from "vitest";
import { columnsOf, type Geometry, placeAt, visible, yOf } from "./geometry";

const plain: Geometry = { top: 10.5, rowHeight: 20, height: 200, count: 100, open: null };
const opened: Geometry = { ...plain, open: { place: 12, extra: 100 } };

describe("geometry", () => {
  it("finds the place it drew", () => {
    for (const geometry of [plain, opened]) {
      for (let place = 11; place < 16; place++) {
        expect(placeAt(geometry, yOf(geometry, place))).toBe(place);
        expect(placeAt(geometry, yOf(geometry, place) + 19.5)).toBe(place);
      }
    }
  });

  it("gives an opened row its whole height", () => {
    expect(placeAt(opened, yOf(opened, 12) + 119)).toBe(12);
    expect(placeAt(opened, yOf(opened, 12) + 121)).toBe(13);
  });

  it("knows where the trace ends", () => {
    expect(placeAt({ ...plain, top: 98 }, 45)).toBe(-1);
    expect(visible({ ...plain, top: 95 })).toEqual({ first: 95, last: 99 });
    expect(visible({ ...plain, top: -2 })).toEqual({ first: 0, last: 8 });
  });

  it.each([600, 900, 1280, 1920])("fills %i pixels with columns", (width) => {
    const columns = columnsOf(width);
    expect(columns.at(-1)!.x + columns.at(-1)!.width).toBe(width);
    for (const { name, width: wide } of columns) if (width >= 620 || name !== "ts") expect(wide).toBeGreaterThan(40);
  });

  it("leaves out the times on a phone", () =>
    expect(columnsOf(390).map(({ width }) => width)).toEqual([46, 0, 179, 89, 76]));
});
