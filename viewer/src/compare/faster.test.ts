import { expect, test } from "vitest";
import type { Comparison } from "../data/model/comparison";
import { type Entry, entriesOf, extremes, fasterCsv, MEASURES, type Order, ordered, totalsOf } from "./faster";

const side = (took: number, waited: number) => ({ began: 5, took, waited });
const JOBS: Entry[] = [
  { id: "job10", a: side(4, 1), b: side(3, 0.5), alike: true, whole: true },
  { id: "job2", a: side(2, 0), b: side(6, 3), alike: true, whole: true },
  { id: "only", a: side(1, 0), b: null, alike: false, whole: false },
];
const CUT: Entry = { id: "cut", a: side(9, 0), b: side(1, 0), alike: true, whole: false };
const names = (entries: readonly Entry[]) => entries.map(({ id }) => id);
const sorted = (key: string, of: Order["of"], down: boolean, text = "") =>
  names(ordered([...JOBS, CUT], { key, of, down }, text));

test("totals count those of both, and what is not whole in both is not judged", () => {
  const totals = {
    both: 2,
    cut: 0,
    faster: 1,
    slower: 1,
    sums: { took: 3, waited: 2.5 },
  };
  expect(totalsOf(JOBS, MEASURES.jobs)).toEqual(totals);
  expect(totalsOf([...JOBS, CUT], MEASURES.jobs)).toEqual({ ...totals, cut: 1 });
});

test("who gained most and who lost most", () => {
  expect(names(extremes([...JOBS, CUT], "took", -1, 3))).toEqual(["job10"]);
  expect(names(extremes([...JOBS, CUT], "took", 1, 3))).toEqual(["job2"]);
});

test("they are sorted and filtered, and what is not known stands last", () => {
  expect(sorted("took", "change", true)).toEqual(["job2", "job10", "cut", "only"]);
  expect(sorted("took", "change", false)).toEqual(["job10", "job2", "cut", "only"]);
  expect(sorted("took", "b", true)).toEqual(["job2", "job10", "cut", "only"]);
  expect(sorted("", "name", false, "JOB")).toEqual(["job2", "job10"]);
});

test("a job is whole if both finished as many requests, a request if both finished it", () => {
  const half = { begin: 0, end: 4, waited: 1, requests: 2, finished: 1 };
  const request = {
    request: 0,
    begin: 0,
    waited: 1,
    ttft: 2,
    tpot: 1,
    e2e: 3,
    finished: true,
    floors: { e2e: Number.NaN },
  };
  const found = {
    jobs: [
      { id: "j", alike: true, a: { ...half, finished: 2 }, b: half },
      { id: "k", alike: true, a: { ...half, finished: 2 }, b: { ...half, finished: 2 } },
    ],
    requests: [{ id: "r", alike: true, a: request, b: { ...request, e2e: 5 } }],
  } as unknown as Comparison;
  expect(entriesOf(found, "jobs").map(({ whole }) => whole)).toEqual([false, true]);
  const [r] = entriesOf(found, "requests");
  expect(r).toMatchObject({ id: "r", whole: true, a: { e2e: 3 }, b: { e2e: 5 } });
});

test("as CSV what is not known is empty", async () => {
  const lines = (await fasterCsv(JOBS, "jobs").text()).trim().split("\r\n");
  expect(lines[0]).toBe("job,a_began,a_took,a_waited,b_began,b_took,b_waited,took_change,waited_change");
  expect(lines[3]).toBe("only,5,1,0,,,,,");
});
