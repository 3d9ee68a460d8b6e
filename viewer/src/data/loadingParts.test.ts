/** What loading is made of, in pieces that need no worker. */

import { describe, expect, it } from "vitest";
import { WholeColumn } from "./columns";
import { compare } from "./compare";
import { gpuOfName, kindOfText, listings } from "./detect";
import { header, inferGpu } from "./header";
import { plain, shortId, shortJob } from "./labels";
import { levelsOfDetail } from "./levels";
import { LineSplitter } from "./lines";
import { life } from "./lives";
import { MISSING } from "./model/columns";
import { newNotes } from "./notes";
import { RecordBook } from "./recordBook";
import { decision, snapshot, storeFrom } from "./sampleStore";
import { StepsReader } from "./steps";
import { rowAtTime, rowOfStep } from "./store";
import { snapshotsOf } from "./withoutSteps";

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const bytes = (line: string) => new TextEncoder().encode(line);

describe("lines", () => {
  it("are the same however the bytes are cut", () => {
    const whole = bytes('{"a":1}\r\n\n{"b":"é€"}\n{"c":');
    for (let cut = 0; cut <= whole.length; cut++) {
      const found: [string, number, number][] = [];
      const splitter = new LineSplitter((line, offset, number) => found.push([text(line), offset, number]));
      splitter.push(whole.subarray(0, cut));
      splitter.push(whole.subarray(cut));
      splitter.end();
      expect(found).toEqual([
        ['{"a":1}', 0, 1],
        ["", 9, 2],
        ['{"b":"é€"}', 10, 3],
        ['{"c":', 24, 4],
      ]);
    }
  });
});

describe("columns", () => {
  it("widen when a number does not fit 32 bits", () => {
    const column = new WholeColumn();
    column.push(7);
    column.push(null);
    column.push(2 ** 40);
    expect(Array.from(column.data.subarray(0, 3))).toEqual([7, MISSING, 2 ** 40]);
  });
});

describe("detection", () => {
  it("goes by the first records", () => {
    expect(kindOfText('nonsense\n{"event":"step_decision","step":1}\n')).toBe("steps");
    expect(kindOfText('{"req_id":"a","step":1}\n')).toBe("requests");
    expect(kindOfText('{"event":"of_tomorrow"}\n[1]\n')).toBeNull();
  });

  it("finds the GPU in a name, between separators only", () => {
    expect(gpuOfName("dma_highload_a100_jps15_dram128")).toBe("A100");
    expect(gpuOfName("run-rtx5090-2")).toBe("5090");
    expect(gpuOfName("cpu_offload")).toBe("CPU_OFFLOAD");
    expect(gpuOfName("xa100y")).toBe("");
  });

  it("takes the server's list as it comes, and leaves out what is no trace", () => {
    const found = listings([
      { name: "x_h100", date: "2026-04-19 16:02", steps_mb: 23.4, steps: ["/t/a b.steps.jsonl"], requests: [] },
      { name: "nothing" },
      "text",
    ]);
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ gpu: "H100", stepsMb: 23.4, requestsMb: null });
    expect(found[0].files.steps).toMatchObject({ url: "/api/file?path=%2Ft%2Fa%20b.steps.jsonl" });
  });
});

describe("labels", () => {
  it("shorten in the middle and show what hides", () => {
    expect(shortId("abcdefghijklmnopqrstuvwxyz", 9)).toBe("abcd…wxyz");
    expect(plain("a\u202eb\u0000c")).toBe("a\ufffdb\ufffdc");
    expect(shortId("x".repeat(2 ** 20)).length).toBeLessThan(40);
    expect([shortJob("swe_0008"), shortJob("job_17"), shortJob("chat")]).toEqual(["j0008", "j17", "chat"]);
  });
});

describe("the header", () => {
  it("guesses the GPU by its blocks", () => {
    expect([7_999, 8_000, 34_999, 59_999, 60_000, null].map(inferGpu)).toEqual([
      ...["5090", "A100-40GB", "H100/A100-80GB", "H200-141GB", "unknown", "unknown"],
    ]);
  });

  it("holds the tokens of document 000", async () => {
    const store = await storeFrom([
      snapshot(0, ["a_1_t0"], ["b_2_t0"], { policy: "cpu_offload", cpu_total_blocks: 65_536, cpu_free_blocks: 1 }),
      snapshot(5, ["a_1_t0", "b_2_t0"], []),
    ]);
    expect(header(store).map(({ text: token }) => token)).toEqual([
      ...["CPU_OFFLOAD", "A100-40GB", "KV:10318blk(20GB)", "DRAM:65536blk(128GB)", "2 jobs"],
      ...["2 requests", "steps 0–5 (2)", "5.0s", "maxRun:2", "partial", "steps"],
    ]);
  });
});

describe("a requests file alone", () => {
  it("makes a step of its records, also where two parts meet", () => {
    const part = (lines: [number, string, string][]) => {
      const book = new RecordBook("requests", newNotes());
      lines.forEach(([step, queue, id], i) => {
        book.record({ step, queue, req_id: id, job_id: `job ${id}`, ts: step / 2 }, i, i + 1);
      });
      return book.chunk(lines.length);
    };
    const parts = [
      part([
        [1, "running", "a"],
        [1, "waiting", "b"],
        [2, "running", "a"],
      ]),
      part([
        [2, "running", "b"],
        [3, "running", "b"],
      ]),
    ];
    const found = [...snapshotsOf(parts)];
    expect(
      found.map(({ step, ts, running_req_ids: running, waiting_req_ids: waiting }) => [step, ts, running, waiting]),
    ).toEqual([
      [1, 0.5, ["a"], ["b"]],
      [2, 1, ["a", "b"], []],
      [3, 1.5, ["b"], []],
    ]);
    expect(found[0]["waiting_job_ids"]).toEqual(["job b"]);
  });
});

describe("hostile lines", () => {
  it("are counted, named and survived", async () => {
    const store = await storeFrom([
      "{",
      "null",
      '{"event":"step_snapshot"}',
      '{"event":"__proto__","step":1}',
      snapshot(1, ["constructor", "__proto__", "</script><b>"], ["toString"], { free_blocks: 1e300 }),
      decision(1, { constructor: 3, "</script><b>": 2 }),
      `{"event":"step_snapshot","step":2,"running_req_ids":["${"x".repeat(2 ** 20)}"],"num_running":"2"}`,
    ]);
    expect(store.rows).toBe(2);
    expect(store.notes.badLines).toBe(3);
    expect(store.notes.firstBadLines.map(({ line }) => line)).toEqual([1, 2, 3]);
    expect(Object.entries(store.notes.unknownEvents)).toEqual([["__proto__", 1]]);
    expect(store.notes.droppedFields).toEqual({ "step_snapshot.free_blocks": 1 });
    expect(store.steps.tokenSum[0]).toBe(5);
    expect(store.steps.numRunning[1]).toBe(2);
    expect(store.notes.longTexts).toBe(1);
  });

  it("out of order find their row by number", async () => {
    const store = await storeFrom([snapshot(3, [], []), snapshot(1, [], []), snapshot(1, [], []), snapshot(9, [], [])]);
    expect(store.rows).toBe(4);
    expect(store.ordered).toBe(false);
    expect(store.notes.rowsOutOfOrder).toBe(2);
    expect([1, 9, 8].map((step) => rowOfStep(store, step))).toEqual([1, 3, 3]);
  });
});

describe("a trace that is still written", () => {
  it("shows its last steps, and shows them whole once they are", () => {
    const lines = [snapshot(0, ["a"], []), decision(0, { a: 1 }), snapshot(1, ["a"], ["b"]), decision(1, { a: 1 })];
    const all = bytes(`${lines.join("\n")}\n`);
    const reader = new StepsReader("steps");
    const seen: number[] = [];
    for (let at = 0; at < all.length; at += 50) {
      reader.push(all.subarray(at, at + 50));
      seen.push(reader.tables(true).rows);
    }
    expect(seen.at(0)).toBe(0);
    expect(seen).toContain(1);
    const last = reader.tables(true);
    expect(last.rows).toBe(2);
    expect(Array.from(last.steps.tokenSum.slice(0, 2))).toEqual([1, 1]);
    expect(last.requests.ids).toEqual(["a", "b"]);
  });
});

describe("lives", () => {
  it("run from the queue through prefill to decode, and again after a preemption", async () => {
    const store = await storeFrom([
      snapshot(0, [], ["a"]),
      decision(0, {}),
      snapshot(1, [], ["a"]),
      decision(1, { a: 9 }, ["a"]),
      snapshot(2, ["a"], []),
      decision(2, { a: 1 }),
      snapshot(3, ["a"], []),
      decision(3, {}, [], ["a"]),
      snapshot(4, [], ["a"]),
      decision(4, {}),
      snapshot(5, [], []),
      decision(5, {}),
    ]);
    expect(life(store, 0).phases.map(({ kind, first, last }) => [kind, first, last])).toEqual([
      ["queued", 0, 0],
      ["prefill", 1, 1],
      ["decode", 2, 2],
      ["preempted", 3, 4],
    ]);
    expect(rowAtTime(store, 102.5)).toBe(2);
  });
});

describe("levels of detail", () => {
  it("keep least, most, sum and the reason of most rows", async () => {
    const lines = Array.from({ length: 40 }, (_, step) => [
      snapshot(step, ["r"], step < 20 ? ["w"] : [], { free_blocks: step < 20 ? step : 900 }),
      decision(step, { r: 1 }),
    ]).flat();
    const store = await storeFrom(lines);
    const levels = await levelsOfDetail(store);
    const level = levels.pick(16);
    expect(level?.k).toBe(4);
    expect(level?.bins).toBe(3);
    expect([level?.min.freeBlocks[0], level?.max.freeBlocks[0], level?.sum.freeBlocks[0]]).toEqual([0, 15, 120]);
    const names = Array.from(level?.dominant ?? [], (shown) => store.shown[shown].name);
    expect(names).toEqual(["kv-low", "under-capacity", "under-capacity"]);
    expect(Array.from(level?.blockedShare ?? [])).toEqual([1, 0.25, 0]);
    expect(levels.pick(1)).toBeNull();
  });
});

describe("two traces", () => {
  it("part where their decisions do", async () => {
    const one = [
      snapshot(0, [], ["a", "b"]),
      decision(0, { a: 4 }, ["a"]),
      snapshot(1, ["a"], ["b"]),
      decision(1, { a: 1 }),
    ];
    const other = [...one.slice(0, 3), decision(1, { a: 1, b: 4 }, ["b"])];
    const [a, b] = [await storeFrom(one), await storeFrom(other)];
    expect((await compare(a, a)).parting).toBeNull();
    const found = await compare(a, b);
    expect(found.parting).toMatchObject({ rowA: 1, rowB: 1, what: "requests admitted", detail: "only in B: b" });
    expect(found.rowInB(1, "step")).toBe(1);
    expect(found.rowInB(1, "time")).toBe(1);
  });
});
