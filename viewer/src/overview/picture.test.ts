import { expect, test } from "vitest";
import { about } from "./picture";

test("the whole run is computed as it is", () => {
  expect(about({ first: 0, last: 1000 }, 1000, 300)).toEqual({ first: 0, last: 999, slices: 300 });
  expect(about({ first: 0, last: 40 }, 40, 300)).toEqual({ first: 0, last: 39, slices: 40 });
});

test("a zoomed view has more than itself at both sides, and keeps it while it is moved a little", () => {
  const views = Array.from({ length: 900 }, (_, at) => ({ first: 7 * at, last: 7 * at + 1500 }));
  const found = views.map((view) => about(view, 100_000, 300));
  for (const [at, { first, last }] of found.entries()) {
    expect(first).toBeLessThanOrEqual(views[at].first);
    expect(last + 1).toBeGreaterThanOrEqual(views[at].last);
  }
  expect(new Set(found.map(({ first }) => first)).size).toBeLessThan(6);
});
