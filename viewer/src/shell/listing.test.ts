import { describe, expect, it } from "vitest";
import type { TraceListing } from "../data/model/sources";
import { entriesOf, sortEntries } from "./listing";

const listing = (name: string, date: string, gpu: string, run = name, rank: number | null = null): TraceListing => ({
  name,
  date,
  gpu,
  policy: "",
  model: "",
  stepsMb: null,
  requestsMb: null,
  run,
  rank,
  partial: false,
  files: { name, steps: null, requests: null },
});
const ALL = [
  listing("run10", "2026-01-02 10:00", "H100"),
  listing("Run2", "2026-01-03 09:00", "A100"),
  listing("other", "2025-12-31 23:59", "H100"),
];
const names = (text: string, key: "name" | "date" | "gpu", down: boolean) =>
  sortEntries(entriesOf(ALL), text, { key, down }).map((found) => found.name);

describe("sortEntries", () => {
  it("sorts by name, date and GPU, both ways", () => {
    expect(names("", "name", false)).toEqual(["other", "Run2", "run10"]);
    expect(names("", "date", true)).toEqual(["Run2", "run10", "other"]);
    expect(names("", "gpu", false)).toEqual(["Run2", "other", "run10"]);
    expect(names("", "gpu", true)).toEqual(["other", "run10", "Run2"]);
  });

  it("filters whatever the case", () => expect(names(" RUN", "name", false)).toEqual(["Run2", "run10"]));
});

describe("entriesOf", () => {
  const ranks = (traces: readonly TraceListing[]) => traces.map(({ rank }) => rank);

  it("takes the engines of one run together, by rank", () => {
    const entries = entriesOf([
      listing("b/rank-10", "3", "H100", "/t/b", 10),
      listing("a/rank-0", "2", "H100", "/t/a", 0),
      listing("b/rank-9", "1", "H100", "/t/b", 9),
      listing("plain", "1", "H100", "/t/plain"),
    ]);
    expect(entries.map(({ name, traces }) => [name, ranks(traces)])).toEqual([
      ["b", [9, 10]],
      ["a/rank-0", [0]],
      ["plain", [null]],
    ]);
  });

  it("names a run whose folder is the one that is served", () => {
    const [entry] = entriesOf([listing("rank-1", "1", "", "/t/moon", 1), listing("rank-0", "1", "", "/t/moon", 0)]);
    expect([entry.name, ranks(entry.traces)]).toEqual(["moon", [0, 1]]);
  });

  it("names a run by its folder where the first engine writes into it", () => {
    const [entry] = entriesOf([listing("moon", "1", "", "/t/moon", 0), listing("moon/rank-1", "1", "", "/t/moon", 1)]);
    expect([entry.name, ranks(entry.traces)]).toEqual(["moon", [0, 1]]);
  });

  it("keeps two traces in one folder apart", () => {
    expect(entriesOf([listing("x/a", "1", "", "/t/x"), listing("x/b", "1", "", "/t/x")])).toHaveLength(2);
  });
});
