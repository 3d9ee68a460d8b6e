import { expect, test } from "vitest";
import { MISSING } from "../data/model/columns";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { decision, snapshot, storeFrom } from "../data/sampleStore";
import { closely, difference, nextDifference, pairs, sideOf } from "./sides";

function store(numbers: number[], running: number[]): TraceStore {
  const fill = (value: number) => Int32Array.from(numbers, () => value);
  return {
    rows: numbers.length,
    steps: {
      number: Int32Array.from(numbers),
      ts: Float64Array.from(numbers, (number) => 100 + number),
      shown: Uint8Array.from(numbers, () => 0),
      numRunning: Int32Array.from(running),
      numWaiting: fill(0),
      tokenSum: fill(MISSING),
      freeBlocks: fill(10),
    },
  } as unknown as TraceStore;
}

function byStep(a: TraceStore, b: TraceStore): Comparison {
  const numbers = [...b.steps.number];
  return { rowInB: (row: number) => numbers.indexOf(a.steps.number[row]) } as unknown as Comparison;
}

test("every step of A has its partner, and what only B has comes after", () => {
  const a = store([0, 1, 2], [1, 2, 3]);
  const b = store([0, 2, 3, 4], [1, 9, 4, 5]);
  const list = pairs(a, b, byStep(a, b), "step");
  expect(Array.from({ length: list.count }, (_, at) => Object.values(list.at(at)))).toEqual([
    [0, 0],
    [1, -1],
    [2, 1],
    [-1, 2],
    [-1, 3],
  ]);
});

test("B's tail is found when A's last step has no partner", () => {
  const a = store([0, 5], [1, 1]);
  const b = store([0, 6, 7], [1, 1, 1]);
  expect(pairs(a, b, byStep(a, b), "step").count).toBe(4);
});

test("a number that is not told is no difference", () => {
  const a = store([0, 1], [1, 2]);
  const b = store([0, 1], [1, MISSING]);
  expect(difference(sideOf(a, 1), sideOf(b, 1))).toBe("same");
  expect(difference(sideOf(a, 0), null)).toBe("only A");
  expect(difference(null, sideOf(b, 0))).toBe("only B");
});

test("the next difference is found in both directions", () => {
  const a = store([0, 1, 2, 3], [1, 2, 3, 4]);
  const b = store([0, 1, 2, 3], [1, 7, 3, 8]);
  const list = pairs(a, b, byStep(a, b), "step");
  expect(nextDifference(a, b, list, -1, 1)).toBe(1);
  expect(nextDifference(a, b, list, 1, 1)).toBe(3);
  expect(nextDifference(a, b, list, 3, 1)).toBe(-1);
  expect(nextDifference(a, b, list, 3, -1)).toBe(1);
});

test("equal numbers are not the same where the queue or the decision is another", async () => {
  const run = (waiting: string[], admitted: string) =>
    storeFrom([snapshot(0, [], waiting), decision(0, { [admitted]: 4 }, [admitted])]);
  const [a, reordered, other] = [await run(["a", "b"], "a"), await run(["b", "a"], "a"), await run(["a", "b"], "b")];
  const pair = { a: 0, b: 0 };
  expect(closely(a, a, pair).kind).toBe("same");
  expect(closely(a, reordered, pair)).toMatchObject({ kind: "seen", what: expect.stringContaining("another order") });
  expect(closely(a, other, pair)).toMatchObject({ kind: "differs", what: expect.stringContaining("only in A: a") });
});
