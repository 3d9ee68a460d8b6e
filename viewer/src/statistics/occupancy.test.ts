import { expect, test } from "vitest";
import { MISSING } from "../data/model/columns";
import type { Level, LevelsOfDetail } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";
import { occupancy, stacked } from "./occupancy";

const ALL = { first: 0, last: 3 };

function store(change: Record<string, Int32Array> = {}): TraceStore {
  return {
    rows: 4,
    steps: {
      freeBlocks: Int32Array.of(100, 60, MISSING, 10),
      totalBlocks: Int32Array.of(100, 100, 100, 100),
      pinnedBlocks: Int32Array.of(0, 15, 0, MISSING),
      cpuFreeBlocks: Int32Array.of(50, 40, 30, 20),
      cpuTotalBlocks: Int32Array.of(50, 50, 50, 50),
      ...change,
    },
  } as unknown as TraceStore;
}

test("active, pinned and free add up to the pool; gaps stay gaps", () => {
  const found = occupancy(store(), null, ALL, "vram", 100);
  expect(found).toEqual({
    rows: [0, 1, 2, 3],
    active: [0, 25, Number.NaN, 90],
    pinned: [0, 15, Number.NaN, 0],
    free: [100, 60, Number.NaN, 10],
    total: 100,
    peak: [0, 40, Number.NaN, 90],
  });
  expect(stacked(found as NonNullable<typeof found>)).toEqual([
    [0, 25, null, 90],
    [0, 40, null, 90],
    [100, 100, null, 100],
    [0, 40, null, 90],
  ]);
});

test("pins that share blocks are not drawn beyond the blocks in use", () => {
  const shared = { pinnedBlocks: Int32Array.of(0, 70, 0, 0) };
  expect(occupancy(store(shared), null, ALL, "vram", 100)).toMatchObject({
    active: [0, 0, Number.NaN, 90],
    pinned: [0, 40, Number.NaN, 0],
  });
});

test("the offload tier has no pins, and the range cuts", () => {
  const found = occupancy(store(), null, { first: 1, last: 2 }, "dram", 100);
  expect(found).toMatchObject({ rows: [1, 2], active: [10, 20], pinned: [0, 0], free: [40, 30], total: 50 });
});

test("a pool of which the trace says nothing is not drawn", () => {
  const nothing = Int32Array.of(MISSING, MISSING, MISSING, MISSING);
  expect(occupancy(store({ cpuTotalBlocks: nothing }), null, ALL, "dram", 100)).toBeNull();
});

test("from levels of detail: means, and the peak as a maximum", () => {
  const level = {
    k: 1,
    bins: 2,
    sum: { usedBlocks: Float64Array.of(40, 90), pinnedBlocks: Float64Array.of(10, 0) },
    known: { usedBlocks: Uint32Array.of(2, 1), pinnedBlocks: Uint32Array.of(2, 0) },
    max: { usedBlocks: Float32Array.of(40, 90) },
  } as unknown as Level;
  const levels = { pick: (rows: number) => (rows >= 2 ? level : null) } as unknown as LevelsOfDetail;
  expect(occupancy(store(), levels, ALL, "vram", 2)).toEqual({
    rows: [0, 3],
    active: [15, 90],
    pinned: [5, 0],
    free: [80, 10],
    total: 100,
    peak: [40, 90],
  });
});
