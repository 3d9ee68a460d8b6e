import { describe, expect, it } from "vitest";
import type { TraceFiles } from "../data/model/sources";
import { firstEngine, isOneRun } from "./engines";

function at(path: string): TraceFiles {
  return { name: path, steps: { kind: "url", url: path, path, bytes: 1 }, requests: null };
}
const STEPS = "sched_trace.fcfs.steps.jsonl";

describe("engines of one run", () => {
  it("lie in folders that differ by the engine alone", () => {
    expect(isOneRun([at(`a/rank-0/${STEPS}`), at(`a/rank-10/${STEPS}`)])).toBe(true);
    expect(isOneRun([at(`a/prefill/rank-1/${STEPS}`), at(`a/decode/${STEPS}`)])).toBe(true);
    expect(isOneRun([at(`a/${STEPS}`), at(`a/rank-1/${STEPS}`)])).toBe(true);
    expect(isOneRun([at(`a/rank-0/${STEPS}`), at(`b/rank-1/${STEPS}`)])).toBe(false);
    expect(isOneRun([at(`a/ranking/${STEPS}`), at(`a/rank-1/${STEPS}`)])).toBe(false);
    expect(isOneRun([at(`a/rank-0/${STEPS}`), { ...at("x"), steps: null }])).toBe(false);
  });

  it("begin with the first rank, or with the one that decodes", () => {
    expect(firstEngine([10, 2, 1].map((rank) => at(`a/rank-${rank}/${STEPS}`))).name).toContain("rank-1/");
    expect(firstEngine([at(`a/prefill/${STEPS}`), at(`a/decode/${STEPS}`)]).name).toContain("decode");
  });
});
