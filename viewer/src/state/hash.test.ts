import { describe, expect, it } from "vitest";
import { EMPTY, type HashState, readHash, writeHash } from "./hash";

const FULL: HashState = {
  trace: "/tmp/a b/sched_trace.x.steps.jsonl",
  reqs: true,
  with: "/tmp/ü&=#.jsonl",
  live: "paused",
  tab: "requests",
  view: [10.25, 500.001],
  selection: [20, 30],
  step: 25,
  req: '<img src=x onerror="1">&%',
  filter: 'job:a reason:"kv full"',
  extra: { lanes: "wait" },
};

describe("hash", () => {
  it("gives back what it was given", () => expect(readHash(`#${writeHash(FULL)}`)).toEqual(FULL));

  it("is empty for a fresh page", () => {
    expect(writeHash(EMPTY)).toBe("");
    expect(readHash("")).toEqual(EMPTY);
  });

  it.each([
    "#view=9..1",
    "#view=1..2..3",
    "#view=a..b",
    "#step=1e9",
    "#tab=<b>",
    "#theme=dark",
    "#%",
    "#=&==",
    "#view=1",
    "#view=1.2345..2",
    "#sel=1.5..2",
    "#live=x",
  ])("%s is a fresh page", (hash) => expect(readHash(hash)).toEqual(EMPTY));

  it("keeps a megabyte out of the address", () => {
    expect(writeHash({ ...EMPTY, req: "x".repeat(1_000_000) })).toBe("tab=overview");
  });
});
