import { expect, test } from "vitest";
import type { RequestLife } from "../data/model/lives";
import { MOST_TRACKS, tracks } from "./tracks";

function turn(first: number, last: number): RequestLife {
  return {
    request: 0,
    phases: [{ kind: "decode", first, last, begin: first, end: last }],
    unfinished: false,
  };
}

test("turns that follow each other share a track", () => {
  const found = tracks([turn(0, 5), turn(5, 9), turn(12, 20)]);
  expect([...found.of]).toEqual([0, 0, 0]);
  expect(found.count).toBe(1);
});

test("turns that overlap do not, whatever their order", () => {
  const found = tracks([turn(4, 8), turn(0, 6), turn(7, 9)]);
  expect([...found.of]).toEqual([1, 0, 0]);
  expect(found.count).toBe(2);
});

test("a lane has only so many tracks", () => {
  const found = tracks(Array.from({ length: 9 }, () => turn(0, 10)));
  expect(found.count).toBe(MOST_TRACKS);
  expect(Math.max(...found.of)).toBe(MOST_TRACKS - 1);
});

test("a job without turns is empty, not broken", () => expect(tracks([]).count).toBe(1));
