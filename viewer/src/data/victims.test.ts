/** The requests that waited: a group that stands out, a few of one kind, or none. */

import { describe, expect, it } from "vitest";
import type { TraceStore } from "./model/trace";
import { victimsOf } from "./victims";

interface Given {
  adapter: string;
  arrived: number;
  /** NaN: it never was. */
  scheduled: number;
  priority?: number;
}

/** A trace whose first step lasts from 0 to 100. */
function storeOf(given: readonly Given[]): TraceStore {
  const adapters = [...new Set(given.map(({ adapter }) => adapter))];
  const none = new Int32Array(given.length).fill(-1);
  return {
    rows: 2,
    steps: { ts: Float64Array.of(0, 100) },
    ...{ jobs: { ids: [] }, tenants: [], adapters },
    requests: {
      ...{ count: given.length, ids: given.map((_, at) => `r${at}x`), job: none, tenant: none },
      ...{ promptTokens: none, outputTokens: none },
      arrivalTime: Float64Array.from(given, ({ arrived }) => arrived),
      firstScheduledTime: Float64Array.from(given, ({ scheduled }) => scheduled),
      finishedTime: new Float64Array(given.length).fill(Number.NaN),
      priority: Int32Array.from(given, ({ priority }) => priority ?? 0),
      adapter: Int32Array.from(given, ({ adapter }) => adapters.indexOf(adapter)),
    },
  } as unknown as TraceStore;
}

const many = (number: number, one: Given): Given[] => Array.from({ length: number }, () => one);
const at = { arrived: 10, scheduled: 11 };

describe("victims", () => {
  it("names the group that most of the waiting was of", async () => {
    const found = await victimsOf(
      storeOf([...many(20, { adapter: "a", ...at }), ...many(2, { adapter: "b", arrived: 10, scheduled: 60 })]),
      { first: 0, last: 0 },
    );
    expect(found?.seconds).toBe(120);
    expect(found?.groups.map(({ name, share, requests }) => [name, share, requests])).toEqual([["b", 100 / 120, 2]]);
  });

  it("names a few of one kind together", async () => {
    const found = await victimsOf(
      storeOf([
        ...many(20, { adapter: "a", ...at }),
        ...many(3, { adapter: "b", arrived: 10, scheduled: 30 }),
        ...many(2, { adapter: "c", arrived: 10, scheduled: 35 }),
        ...many(4, { adapter: "d", arrived: 10, scheduled: 20 }),
      ]),
      { first: 0, last: 0 },
    );
    expect(found?.groups.map(({ name }) => name)).toEqual(["b", "c"]);
  });

  it("says whose waiting it was where none stands out", async () => {
    const found = await victimsOf(
      storeOf([
        ...many(9, { adapter: "a", arrived: 10, scheduled: 20 }),
        ...many(6, { adapter: "b", arrived: 10, scheduled: 20 }),
        { adapter: "c", ...at },
      ]),
      { first: 0, last: 0 },
    );
    expect(found?.groups).toEqual([]);
    expect(found?.parts.map(({ name, seconds }) => [name, seconds])).toEqual([
      ["a", 90],
      ["b", 60],
    ]);
    const lone = await victimsOf(storeOf(many(9, { adapter: "a", ...at })), { first: 0, last: 0 });
    expect([lone?.groups, lone?.parts]).toEqual([[], []]);
  });

  it("names none where all waited alike, and counts those who were never scheduled", async () => {
    const alike = [...many(6, { adapter: "a", ...at }), ...many(6, { adapter: "b", ...at })];
    expect((await victimsOf(storeOf(alike), { first: 0, last: 0 }))?.groups).toEqual([]);
    const stuck = await victimsOf(storeOf([{ adapter: "a", arrived: 40, scheduled: Number.NaN, priority: 3 }]), {
      ...{ first: 0, last: 0 },
    });
    expect([stuck?.seconds, stuck?.priority]).toEqual([60, 3]);
  });
});
