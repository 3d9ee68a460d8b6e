import { afterEach, expect, test } from "vitest";
import { extra, selection } from "../state/store";
import { laneKey, lanesInView, revealInLanes, windowOf, windowText, ZOOM_KEY, zoomed } from "./window";

const ROWS = 1000;

afterEach(() => {
  extra.value = {};
  selection.value = null;
});

test("without one it is the whole run, and the whole run is none", () => {
  expect(windowOf(undefined, ROWS)).toEqual({ first: 0, last: ROWS });
  expect(windowOf("nonsense", ROWS)).toEqual({ first: 0, last: ROWS });
  expect(windowText({ first: 0, last: ROWS }, ROWS)).toBe("");
});

test("what the address holds is cut to the trace", () => {
  expect(windowOf("900-1100", ROWS)).toEqual({ first: 800, last: 1000 });
  expect(windowOf(windowText({ first: 12.345, last: 67.891 }, ROWS), ROWS)).toEqual({ first: 12.35, last: 67.89 });
});

test("zooming keeps its anchor and ends at two steps", () => {
  expect(zoomed({ first: 100, last: 200 }, 0.5, 125, ROWS)).toEqual({ first: 112.5, last: 162.5 });
  expect(zoomed({ first: 100, last: 103 }, 0.01, 101.5, ROWS)).toEqual({ first: 100.5, last: 102.5 });
  expect(zoomed({ first: 100, last: 200 }, 1e9, 150, ROWS)).toEqual({ first: 0, last: ROWS });
});

test("the timeline's keys move the lanes", () => {
  expect(laneKey("w", ROWS)).toBe(true);
  expect(windowOf(extra.value[ZOOM_KEY], ROWS).last - windowOf(extra.value[ZOOM_KEY], ROWS).first).toBeCloseTo(667, 0);
  laneKey("D", ROWS);
  expect(windowOf(extra.value[ZOOM_KEY], ROWS).last).toBe(1000);
  selection.value = { first: 10, last: 19 };
  laneKey("f", ROWS);
  expect(extra.value[ZOOM_KEY]).toBe("10-20");
  laneKey("f", ROWS);
  expect(extra.value[ZOOM_KEY]).toBe("");
  expect(laneKey("x", ROWS)).toBe(false);
});

test("a row that the window leaves out moves it, one in it does not", () => {
  extra.value = { [ZOOM_KEY]: "100-200" };
  revealInLanes(ROWS, 150);
  expect(lanesInView(ROWS)).toEqual({ first: 100, last: 199 });
  revealInLanes(ROWS, 600);
  expect(lanesInView(ROWS)).toEqual({ first: 550, last: 649 });
});
