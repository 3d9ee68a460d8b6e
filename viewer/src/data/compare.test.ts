/** Two traces beside each other: settings, the decision at which they part, and runs that did not do the same work. */

import { expect, test } from "vitest";
import { entriesOf } from "../compare/faster";
import { changeText, verdictOf } from "../compare/verdict";
import { compare } from "./compare";
import type { TraceStart } from "./model/trace";
import { decision, snapshot, storeFrom } from "./sampleStore";
import { settingsDifference } from "./settings";

const start = (config: unknown, more: Partial<TraceStart> = {}): TraceStart =>
  ({ policy: "fcfs", model: "m", config, ...more }) as TraceStart;

test("settings that differ are named, each once, and what a header does not tell is no difference", () => {
  const a = start({ scheduler: { policy: "fcfs", max_num_seqs: 3 }, cache: { sizes: [1, 2] }, only: 1 });
  const b = start({ scheduler: { policy: "fcfs", max_num_seqs: 4 }, cache: { sizes: [1, 2] } }, { gpu: "a100" });
  expect(settingsDifference(a, b)).toEqual([
    { name: "scheduler.max_num_seqs", a: "3", b: "4" },
    { name: "only", a: "1", b: null },
    { name: "gpu", a: null, b: "a100" },
  ]);
  expect(settingsDifference(a, start(null, { gpu: "a100" }))).toEqual([{ name: "gpu", a: null, b: "a100" }]);
  const twice = [start({ scheduler: { policy: "fcfs" } }), start({ scheduler: { policy: "x" } }, { policy: "x" })];
  expect(settingsDifference(twice[0], twice[1])).toEqual([{ name: "scheduler.policy", a: "fcfs", b: "x" }]);
  expect(settingsDifference(a, null)).toBeNull();
  const flags = [["--x 1"], ["--x 1", "--policy p"]].map((used) => start({ deployment: { used, seats: 1 } }));
  expect(settingsDifference(flags[0], flags[1])).toEqual([]);
});

const BEFORE = [snapshot(0, [], ["a", "b"]), decision(0, { a: 4 }, ["a"])];

test("the cause is the first decision that differs, not the first number", async () => {
  const [inA, inB] = [9, 7].map((free) => snapshot(1, ["a"], ["b"], { free_blocks: free, pinned_blocks: 16 - free }));
  const a = await storeFrom([...BEFORE, inA, decision(1, { a: 1 }), inA.replace('"step":1', '"step":2')]);
  const b = await storeFrom([...BEFORE, inB, decision(1, { a: 1 }), inB.replace('"step":1', '"step":2')]);
  expect(await compare(a, b)).toMatchObject({ parting: { rowA: 1, what: "free blocks" }, decision: null });

  const admitting = decision(2, { a: 1, b: 3 }, ["b"]);
  const c = await storeFrom([...BEFORE, inA, decision(1, { a: 1 }), inA.replace('"step":1', '"step":2'), admitting]);
  const d = await storeFrom([
    ...[...BEFORE, inB, decision(1, { a: 1 }), inB.replace('"step":1', '"step":2')],
    decision(2, { a: 1 }),
  ]);
  const found = await compare(c, d);
  expect(found.parting).toMatchObject({ rowA: 1, what: "free blocks", detail: "9 in A, 7 in B" });
  expect(found.decision).toMatchObject({ row: 2, what: "requests admitted", detail: "only in A: b" });
  expect(found.decision?.a).toMatchObject({ freeBlocks: 9, pinnedBlocks: 7, running: 1, tokens: 4 });
  expect(found.decision?.a.firstInQueue).toBe(c.requests.ids.indexOf("b"));
  expect(found.decision?.a.admitted.map((request) => c.requests.ids[request])).toEqual(["b"]);
  expect(found.decision?.b).toMatchObject({ admitted: [], freeBlocks: 7, pinnedBlocks: 9, tokens: 1 });
});

const life = (id: string, arrived: number, ended: number) => [
  ...[{ event: "request_arrived", step: arrived, ts: 100 + arrived, req_id: id, arrival_time: 100 + arrived }],
  ...[{ event: "request_finished", step: ended, ts: 100 + ended, req_id: id, finish_reason: "stop" }],
];
const NO_FIRST_TOKEN = { num_output_tokens: 1 };

/** Each request ends at its moment; the run is ended at `endedAt`. */
function run(ends: Record<string, number>, endedAt?: number): Promise<Awaited<ReturnType<typeof storeFrom>>> {
  const lives = Object.entries(ends).flatMap(([id, ended]) => life(id, 0, ended));
  const lines: string[] = [];
  if (endedAt) lines.push(JSON.stringify({ event: "trace_start" }));
  for (let step = 0; step <= (endedAt ?? Math.max(...Object.values(ends))); step++) {
    const now = (event: string) => lives.filter((each) => each.step === step && each.event === event);
    const running = Object.keys(ends).filter((id) => ends[id] >= step);
    lines.push(
      ...now("request_arrived").map((each) => JSON.stringify(each)),
      snapshot(step, step ? running : [], step ? [] : running),
    );
    lines.push(decision(step, Object.fromEntries(running.map((id) => [id, 1])), step ? [] : running));
    lines.push(...now("request_finished").map((each) => JSON.stringify({ ...each, ...NO_FIRST_TOKEN })));
  }
  if (endedAt) lines.push(JSON.stringify({ event: "trace_end", ts: 100 + endedAt }));
  return storeFrom(lines);
}

test("where other requests came, only those of both are compared, and totals are not judged", async () => {
  const [a, b] = [await run({ x: 2, y: 9 }), await run({ x: 4 })];
  const found = await compare(a, b);
  expect(found.arrived).toEqual({ a: 2, b: 1, both: 1 });
  const figure = (label: string) => found.figures.find((each) => each.label === label);
  expect(figure("End to end, mean")).toMatchObject({ a: 2000, b: 4000, lessIsBetter: true });
  expect(figure("Time")).toMatchObject({ lessIsBetter: null });

  const requests = Object.fromEntries(found.requests.map((each) => [each.id, each]));
  expect(requests["x"]).toMatchObject({ a: { e2e: 2, finished: true }, b: { e2e: 4, finished: true } });
  expect(requests["y"]).toMatchObject({ a: { e2e: 9 }, b: null });

  const same = await compare(a, await run({ x: 4, y: 9 }));
  expect(same.arrived).toEqual({ a: 2, b: 2, both: 2 });
  expect(same.figures.find((each) => each.label === "End to end, mean")).toMatchObject({ a: 5500, b: 6500 });
  expect(same.figures.find((each) => each.label === "Time")?.lessIsBetter).toBe(true);
});

test("who has not ended counts by the time so far, and which run is faster may be open", async () => {
  const a = await run({ x: 2, y: 9 });
  const verdictOn = async (ends: Record<string, number>, endedAt: number) => {
    const found = await compare(a, await run(ends, endedAt));
    expect(found.arrived).toEqual({ a: 2, b: 2, both: 2 });
    const e2e = found.figures.find((each) => each.label === "End to end, p99");
    return { e2e, verdict: verdictOf(entriesOf(found, "requests"), { ttft: null, tpot: null, e2e: null }) };
  };
  const early = await verdictOn({ x: 2, y: 99 }, 5);
  expect(early.e2e).toMatchObject({ atLeast: [false, true] });
  expect(early.e2e?.b).toBeCloseTo(4970);
  expect(early.verdict).toMatchObject({ both: 2, cut: 1, winner: /open/ });
  expect(early.verdict?.changes.map(changeText)).toContain("E2E p99 open (8.93 s to ≥4.97 s)");
  const late = await verdictOn({ x: 2, y: 99 }, 50);
  expect(late.verdict?.changes.find(({ name }) => name === "E2E p99")).toMatchObject({ sign: 1, open: false });
});
