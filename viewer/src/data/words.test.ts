import { describe, expect, it } from "vitest";
import { decision, snapshot, storeFrom } from "./sampleStore";
import { statistics } from "./statistics";
import { codeOf, familyOf, holds } from "./wording";

const refused = (req_id: string, detail?: string) => ({
  req_id,
  reason: "policy_refused",
  ...(detail ? { detail } : {}),
});

function lines(step: number, outcome: object): string[] {
  return [
    snapshot(step, ["a"], ["b", "c", "d"], { ts: step }),
    decision(step, { a: 1 }),
    JSON.stringify({ event: "admission_outcome", step, ts: step, ...outcome }),
  ];
}

/** Reason -> request-seconds. */
async function lost(...all: string[][]): Promise<Record<string, number>> {
  const end = snapshot(all.length, ["a"], [], { ts: all.length });
  const store = await storeFrom([...all.flat(), end], []);
  const { recorded } = await statistics(store, { first: 0, last: store.rows - 1 });
  return Object.fromEntries(recorded.map(({ reason, seconds }) => [reason, seconds]));
}

describe("the words of a policy of one's own", () => {
  it("are reasons of their own, as many requests as are listed with one", async () => {
    const stopped = { kind: "stopped", reason: "policy_refused", detail: "quota", req_id: "b", num_requests: 3 };
    const skipped = [refused("b", "quota"), refused("c", "too long"), refused("d")];
    const passed = { skipped_counts: { policy_refused: 4, kv_blocks: 1 }, skipped };
    expect(await lost(lines(0, stopped))).toEqual({ "policy_refused: quota": 3 });
    expect(await lost(lines(0, stopped), lines(1, passed))).toEqual({
      "policy_refused: quota": 4,
      "policy_refused: too long": 1,
      policy_refused: 2,
      kv_blocks: 1,
    });
  });

  it("are not counted beyond what the step says", async () => {
    const skipped = [refused("b", "quota"), refused("c", "quota")];
    expect(await lost(lines(0, { skipped_counts: { policy_refused: 1 }, skipped }))).toEqual({
      "policy_refused: quota": 1,
    });
  });

  it("are told apart up to a bound", async () => {
    const all = Array.from({ length: 40 }, (_, step) =>
      lines(step, { kind: "stopped", reason: "policy_refused", detail: `word ${step}`, req_id: "b", num_requests: 1 }),
    );
    const found = await lost(...all);
    expect(Object.keys(found)).toHaveLength(33);
    expect(found["policy_refused"]).toBe(8);
  });

  it("belong to what the package knows", () => {
    expect(codeOf("policy_refused: quota")).toBe("policy_refused");
    expect(codeOf("kv_blocks: quota")).toBe("kv_blocks: quota");
    expect(familyOf("policy_refused: quota")).toBe("order");
    expect(holds("policy_refused: quota")).toBe(true);
  });
});
