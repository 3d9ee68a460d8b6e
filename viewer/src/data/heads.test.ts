import { expect, test } from "vitest";
import { headsOf } from "./heads";
import type { WaitingSpan } from "./model/waiting";

const span = (head: number | null, startUs: number, endUs: number) =>
  ({ head, startUs, endUs, firstRow: startUs }) as WaitingSpan;

test("who stood before a request is added up, and who held it longest comes first", () => {
  expect(headsOf([span(3, 0, 10), span(null, 10, 90), span(4, 90, 105), span(3, 105, 120)])).toEqual([
    { request: 3, us: 25, times: 2, firstRow: 0 },
    { request: 4, us: 15, times: 1, firstRow: 90 },
  ]);
  expect(headsOf([span(null, 0, 10)])).toEqual([]);
});
