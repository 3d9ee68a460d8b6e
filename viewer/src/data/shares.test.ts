import { expect, test } from "vitest";
import { MISSING } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { shares } from "./shares";

/** Three short steps held back by one reason, one long step by another: most steps is not most time. */
const store = {
  version: 0,
  rows: 5,
  steps: {
    ts: Float64Array.of(0, 1, 2, 3, 13),
    completedTs: Float64Array.of(1, 2, 3, 13, 14),
    shown: Uint8Array.of(0, 0, 0, 1, 2),
    outcome: Int32Array.of(0, 0, 0, 1, -1),
    unadmitted: Int32Array.of(4, 4, 4, 2, MISSING),
  },
  requests: { finishedTime: new Float64Array(0) },
  outcomes: {
    byReason: { starts: [0, 1], counts: [1, 2], ids: [0, 1, 0], requests: [4, 2, 1] },
  },
  reasonNames: ["kv_blocks", "token_budget"],
  shown: [
    { name: "kv_blocks", recorded: true, blocked: true },
    { name: "token_budget", recorded: true, blocked: true },
    { name: "under-capacity", recorded: false, blocked: false },
  ],
} as unknown as TraceStore;

test("what cost the waiting most time stands first, beside its share of the clock and its steps", () => {
  expect(shares(store, { first: 0, last: 4 })).toEqual([
    { index: 0, rows: 3, seconds: 3, lost: 22, first: 0, last: 3 },
    { index: 1, rows: 1, seconds: 10, lost: 20, first: 3, last: 3 },
    { index: 2, rows: 1, seconds: 1, lost: 0, first: 4, last: 4 },
  ]);
});
