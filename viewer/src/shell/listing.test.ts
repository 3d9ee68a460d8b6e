import { describe, expect, it } from "vitest";
import type { TraceListing } from "../data/model/sources";
import { sortListings } from "./listing";

const listing = (name: string, date: string, gpu: string): TraceListing => ({
  name,
  date,
  gpu,
  stepsMb: null,
  requestsMb: null,
  files: { name, steps: null, requests: null },
});
const ALL = [
  listing("run10", "2026-01-02 10:00", "H100"),
  listing("Run2", "2026-01-03 09:00", "A100"),
  listing("other", "2025-12-31 23:59", "H100"),
];
const names = (text: string, key: "name" | "date" | "gpu", down: boolean) =>
  sortListings(ALL, text, { key, down }).map((found) => found.name);

describe("sortListings", () => {
  it("sorts by name, date and GPU, both ways", () => {
    expect(names("", "name", false)).toEqual(["other", "Run2", "run10"]);
    expect(names("", "date", true)).toEqual(["Run2", "run10", "other"]);
    expect(names("", "gpu", false)).toEqual(["Run2", "other", "run10"]);
    expect(names("", "gpu", true)).toEqual(["other", "run10", "Run2"]);
  });

  it("filters whatever the case", () => expect(names(" RUN", "name", false)).toEqual(["Run2", "run10"]));
});
