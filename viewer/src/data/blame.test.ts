/** When most of those came who come all the time. */

import { expect, test } from "vitest";
import { burstOf } from "./blame";

const every = (count: number, from: number, to: number) =>
  Array.from({ length: count }, (_, at) => from + (at * (to - from)) / count);

test("a burst among some that always come", () => {
  const times = Float64Array.from([...every(20, 5, 600), ...every(80, 242, 328)]).sort();
  const found = burstOf(times, 600);
  expect(found?.from).toBeCloseTo(242, 0);
  expect(found?.to).toBeCloseTo(328, -1);
  expect(found?.requests).toBe(times.filter((at) => at >= (found?.from ?? 0) && at <= (found?.to ?? 0)).length);
  expect(found?.requests).toBeGreaterThanOrEqual(80);
});

test("none where they come evenly, or only a part of them together", () => {
  expect(burstOf(Float64Array.from(every(100, 0, 600)), 600)).toBeNull();
  expect(burstOf(Float64Array.from([...every(80, 0, 600), ...every(20, 300, 310)]).sort(), 600)).toBeNull();
  expect(burstOf(new Float64Array(), 600)).toBeNull();
  expect(burstOf(Float64Array.of(3), 600)).toBeNull();
});
