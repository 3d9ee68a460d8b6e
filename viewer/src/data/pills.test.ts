import { describe, expect, it } from "vitest";
import { badges } from "./badges";
import { pills } from "./pills";
import { decision, snapshot, storeFrom } from "./sampleStore";

/** The example of document 000: job swe_0008, turn 9, prefills for the third step; swe_0011's turn 10 waits. */
async function example() {
  const [run, wait] = ["swe_0008_t9", "swe_0011_t10"];
  const lines = [
    snapshot(0, [], [run], { free_blocks: 900 }),
    JSON.stringify({
      event: "prefix_cache_lookup",
      step: 0,
      req_id: run,
      local_hit_tokens: 80,
      total_prompt_tokens: 7_692,
    }),
    decision(0, { [run]: 2_048 }, [run]),
    snapshot(1, [run], [wait], { free_blocks: 700 }),
    decision(1, { [run]: 2_048 }),
    snapshot(2, [run], [wait], { free_blocks: 533, pinned_job_ids: ["swe_0008"], num_pinned: 1, pinned_blocks: 40 }),
    decision(2, { [run]: 1_542 }),
    snapshot(3, [run], [wait], { free_blocks: 500 }),
    decision(3, { [run]: 1_974 }),
    snapshot(4, [run], [wait], { free_blocks: 490 }),
    decision(4, { [run]: 1 }),
    snapshot(5, [run], [wait], { free_blocks: 490 }),
    decision(5, { [wait]: 8_330 }, [wait], [run]),
    JSON.stringify({
      event: "prefix_cache_lookup",
      step: 5,
      req_id: wait,
      local_hit_tokens: 80,
      total_prompt_tokens: 8_410,
    }),
  ];
  const record = (step: number, queue: string, id: string, computed: number, blocks: number) =>
    JSON.stringify({
      step,
      queue,
      req_id: id,
      num_prompt_tokens: id === run ? 7_692 : 8_410,
      num_tokens: id === run ? 7_692 : 8_410,
      num_computed_tokens: computed,
      num_cached_tokens: id === run ? 80 : 0,
      num_blocks: blocks,
    });
  const requests = [
    record(1, "running", run, 2_128, 133),
    record(2, "running", run, 6_150, 385),
    record(2, "waiting", wait, 0, 0),
    record(3, "running", run, 7_692, 481),
    record(4, "running", run, 7_692, 481),
  ];
  return storeFrom(lines, requests);
}

describe("pills", () => {
  it("label a running request as document 000 does", async () => {
    const store = await example();
    const [pill] = pills(store, 2).running;
    expect(pill.label).toBe("j0008, t9 (p3) [385, fwd:1542t, 1542t left] hit:5/481(1%)");
    expect([pill.kind, pill.prefill, pill.pinned]).toEqual(["running", true, true]);
  });

  it("count steps of decode from one again", async () => {
    const store = await example();
    expect(pills(store, 3).running[0].label).toBe("j0008, t9 (1) [481, fwd:1974t] hit:5/481(1%)");
    expect(pills(store, 4).running[0].label).toBe("j0008, t9 (2) [481, fwd:1t] hit:5/481(1%)");
  });

  it("label a waiting request by what it needs, looking ahead to its lookup", async () => {
    const store = await example();
    const [pill] = pills(store, 2).waiting;
    expect(pill.label).toBe("j0011, t10 [prefill:521b(8330t), 8410t total, 1% cached]");
    expect(pill.kind).toBe("waiting");
  });

  it("tell new, preempted, skipped and waiting requests apart", async () => {
    const store = await example();
    expect(pills(store, 0).running.map(({ kind }) => kind)).toEqual(["new"]);
    expect(pills(store, 5).running.map(({ kind }) => kind)).toEqual(["preempted", "new"]);
    expect(pills(store, 5).waiting).toEqual([]);
    const skipped = await storeFrom([snapshot(0, ["a_t0", "b_t0"], []), decision(0, { b_t0: 1 })]);
    expect(pills(skipped, 0).running.map(({ kind }) => kind)).toEqual(["skipped-run", "running"]);
  });

  it("need no requests file", async () => {
    const store = await storeFrom([snapshot(0, [], ["x"]), decision(0, { x: 5 }, ["x"])]);
    expect(pills(store, 0).running[0].label).toBe("x (p1) [fwd:5t]");
  });
});

describe("badges", () => {
  it("count each kind, the tokens and the blocks", async () => {
    const store = await example();
    const labels = badges(store, 2).map(({ label }) => label);
    expect(labels[0]).toBe("run:1 new:0 res:0 pre:0 skip-run:0 wait:1");
    expect(labels).toContain("pin:1 swe_0008");
    expect(labels).toContain("tok:1542/2048");
    expect(labels).toContain("cached:5b");
    expect(labels.at(-1)).toBe("VRAM: ava:533 used:9785/10318 pin:40 active:9745 (19.1 GB used / 20.2 GB total)");
  });

  it("mark a step that spends its tokens", async () => {
    const hot = badges(await example(), 1).find(({ kind }) => kind === "tokens");
    expect(hot).toMatchObject({ label: "tok:2048/2048 🔥", hot: true });
  });

  it("say what blocked the others", async () => {
    const lines = [snapshot(0, ["r"], ["w"], { free_blocks: 533 }), decision(0, { r: 1 })];
    const blocked = badges(await storeFrom(lines), 0).find(({ kind }) => kind === "blocked");
    expect(blocked?.label).toBe("1 blocked: alloc-rejected(free=533, allocator refused—hash/frag)");
  });
});
