import { expect, test } from "vitest";
import { clampTop, scrollFor, spacerHeight, TALLEST, topAt } from "./scroll";

const LINE = 26;
const ROOM = 10 * LINE;
const MANY = 5_000_000;

test("a few lines scroll by pixels", () => {
  expect(spacerHeight(100, ROOM, LINE)).toBe(100 * LINE);
  expect(topAt(100, 3 * LINE, ROOM, LINE)).toBeCloseTo(3);
});

test("millions scroll in proportion, and the end can be reached", () => {
  expect(spacerHeight(MANY, ROOM, LINE)).toBe(TALLEST);
  expect(topAt(MANY, TALLEST - ROOM, ROOM, LINE)).toBe(MANY - 10);
  expect(topAt(MANY, 0, ROOM, LINE)).toBe(0);
});

test.each([100, MANY])("a line leads to a position that leads back (%d lines)", (count) => {
  for (const top of [0, 1, 17.5, count / 2, count - 10]) {
    const wanted = clampTop(count, top, ROOM, LINE);
    expect(topAt(count, scrollFor(count, top, ROOM, LINE), ROOM, LINE)).toBeCloseTo(wanted, 3);
  }
});

test("fewer lines than there is room for do not scroll", () => {
  expect(topAt(4, 50, ROOM, LINE)).toBe(0);
  expect(spacerHeight(4, ROOM, LINE)).toBe(ROOM);
});
