import { afterAll, beforeEach, describe, expect, it } from "vitest";
import type { TraceStore } from "../data/model/trace";
import { clampView, extend, lowerBound } from "./moves";
import { focusRow, matches, selection, trace, view } from "./store";

describe("clampView", () => {
  it.each([
    [
      [10, 20, 100],
      [10, 20],
    ],
    [
      [-5, 5, 100],
      [0, 10],
    ],
    [
      [95, 105, 100],
      [90, 100],
    ],
    [
      [-50, 500, 100],
      [0, 100],
    ],
    [
      [50, 50.1, 100],
      [50, 52],
    ],
    [
      [0, 1, 1],
      [0, 1],
    ],
  ])("%j becomes %j", ([first, last, rows], [from, to]) => {
    expect(clampView(first, last, rows)).toEqual({ first: from, last: to });
  });

  it("lets the opened row push the last ones up", () => {
    expect(clampView(95, 105, 100, 3)).toEqual({ first: 93, last: 103 });
  });

  it("leaves room below a short trace, but no more", () => {
    expect(clampView(0, 8, 3, 0, 8)).toEqual({ first: 0, last: 8 });
    expect(clampView(5, 30, 3, 0, 8)).toEqual({ first: 0, last: 8 });
  });
});

describe("lowerBound", () => {
  it("finds the first that is not below", () => {
    const sorted = Int32Array.of(2, 4, 4, 9);
    expect([1, 2, 3, 4, 5, 9, 10].map((value) => lowerBound(sorted, value))).toEqual([0, 0, 1, 1, 3, 3, 4]);
  });
});

describe("extend", () => {
  beforeEach(() => {
    trace.value = { rows: 20 } as TraceStore;
    view.value = { first: 0, last: 10 };
    matches.value = { rows: null, requests: null };
    selection.value = null;
    focusRow.value = 5;
  });

  afterAll(() => {
    trace.value = null;
    view.value = { first: 0, last: 0 };
    selection.value = null;
    matches.value = { rows: null, requests: null };
    focusRow.value = -1;
  });

  it("moves the end of the selection that the focus is at", () => {
    extend(1);
    extend(1);
    expect(selection.value).toEqual({ first: 5, last: 7 });
    extend(-1);
    expect([selection.value, focusRow.value]).toEqual([{ first: 5, last: 6 }, 6]);
    extend(-1);
    extend(-1);
    expect([selection.value, focusRow.value]).toEqual([{ first: 4, last: 5 }, 4]);
  });

  it("goes by screens, and no further than the run", () => {
    extend(1, true);
    expect(selection.value).toEqual({ first: 5, last: 14 });
    extend(1, true);
    expect(selection.value).toEqual({ first: 5, last: 19 });
  });

  it("goes from one row that passes the filter to the next", () => {
    matches.value = { rows: Int32Array.of(2, 8, 12), requests: null };
    extend(1);
    expect(selection.value).toEqual({ first: 5, last: 8 });
    extend(1);
    extend(1);
    expect(selection.value).toEqual({ first: 5, last: 12 });
  });
});
