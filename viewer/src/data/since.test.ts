/** Since when a reason holds requests back, where it pauses. */

import { describe, expect, it } from "vitest";
import type { Range } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { ofRows, pressure, rowsOf, stretches } from "./pressure";
import { hasPauses, sinceOf } from "./since";

/** A step a second; `held[row]`: requests that `slots` and `seats` hold back in it. */
function storeOf(held: readonly (readonly [number, number])[]): TraceStore {
  const rows = held.length;
  const column = (value: number) => new Int32Array(rows).fill(value);
  const shown = ["slots", "seats"].map((name) => ({ name, family: "memory", blocked: true, recorded: true }));
  return {
    ...{ key: 1, version: 1, rows, shown, reasonNames: ["slots", "seats"], hasReasons: true, start: null },
    steps: {
      ts: Float64Array.from(held, (_, row) => row),
      completedTs: Float64Array.from(held, (_, row) => row + 1),
      stepSeconds: new Float64Array(rows).fill(1),
      outcome: Int32Array.from(held, (_, row) => row),
      ...{ shown: column(0), unadmitted: column(0), numRunning: column(1), numWaiting: column(1), tokenSum: column(1) },
      ...{ totalBlocks: column(0), freeBlocks: column(0) },
    },
    requests: { finishedTime: new Float64Array(0) },
    outcomes: {
      byReason: {
        starts: Int32Array.from(held, (_, row) => 2 * row),
        counts: column(2),
        ids: Int32Array.from(held.flatMap(() => [0, 1])),
        requests: Int32Array.from(held.flat()),
      },
    },
  } as unknown as TraceStore;
}

const times = <T>(number: number, one: T): T[] => Array.from({ length: number }, () => one);
const FREE = [0, 0] as const;

async function looked(held: readonly (readonly [number, number])[]) {
  const store = storeOf(held);
  const range: Range = { first: 0, last: store.rows - 1 };
  const found = await pressure(store, range, store.rows);
  if (!found) throw new Error("no clock");
  return { store, found, worst: stretches(found, 1)[0] };
}

describe("since", () => {
  it("credits the check with its own part", async () => {
    const { worst } = await looked([...times(5, FREE), ...times(20, [6, 3] as const), ...times(5, FREE)]);
    expect([worst.shown, worst.lost, worst.share * worst.lost, worst.most]).toEqual([0, 180, 120, 9]);
  });

  it("knows whether a reason has one beginning or several", async () => {
    const twice = [
      ...times(5, FREE),
      ...times(5, [4, 3] as const),
      ...times(20, [0, 3] as const),
      ...times(9, [9, 3] as const),
    ];
    const { store, found } = await looked([...twice, ...times(5, FREE)]);
    expect([0, 1].map((shown) => hasPauses(found, shown))).toEqual([true, false]);
    expect(store.steps.ts[sinceOf(store, found, 0)]).toBe(30);
    expect(store.steps.ts[sinceOf(store, found, 0, { begin: 7 })]).toBe(5);
  });
});

describe("a stretch of whole rows", () => {
  it("has the same figures when it is selected", async () => {
    // Half of a slice is a row of the stretch, the other half is not.
    const held = [...times(7, FREE), ...times(9, [8, 1] as const), ...times(4, [5, 0] as const), ...times(11, FREE)];
    const store = storeOf(held);
    const run = await pressure(store, { first: 0, last: store.rows - 1 }, 12);
    if (!run) throw new Error("no clock");
    const [worst] = stretches(run, 1).map((stretch) => ofRows(store, run, stretch));
    const rows = rowsOf(store, worst);
    expect([worst.begin, worst.end]).toEqual([rows.first, rows.last + 1]);
    const within = held.slice(rows.first, rows.last + 1);
    const lost = within.reduce((sum, [slots, seats]) => sum + slots + seats, 0);
    expect(worst.lost).toBeCloseTo(lost, 9);
    expect(worst.share * worst.lost).toBeCloseTo(
      within.reduce((sum, [slots]) => sum + slots, 0),
      9,
    );
    const selected = await pressure(store, rows, 300);
    expect(selected?.reasons.reduce((sum, reason) => sum + reason.lost, 0)).toBeCloseTo(lost, 9);
    expect(rowsOf(store, ofRows(store, run, worst))).toEqual(rows);
  });

  it("ends before the row that begins with its end, whatever the clock", () => {
    const ts = Float64Array.from({ length: 9 }, (_, row) => 1.8e9 + row);
    const store = { rows: 9, steps: { ts } } as unknown as TraceStore;
    expect(rowsOf(store, { begin: 1.8e9 + 2, end: 1.8e9 + 5 })).toEqual({ first: 2, last: 4 });
  });
});
