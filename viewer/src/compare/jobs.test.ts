import { expect, test } from "vitest";
import { type Job, jobsCsv, orderedJobs, totalsOf } from "./jobs";

const side = (took: number, waited: number, finished = 2) => ({
  ...{ begin: 5, end: 5 + took, waited },
  requests: 2,
  finished,
});
const JOBS: Job[] = [
  { id: "job10", a: side(4, 1), b: side(3, 0.5) },
  { id: "job2", a: side(2, 0), b: side(6, 3) },
  { id: "only", a: side(1, 0), b: null },
];
const names = (order: "took" | "waited" | "name", text = "") => orderedJobs(JOBS, order, text).map(({ id }) => id);

test("totals count the jobs of both", () => {
  expect(totalsOf(JOBS)).toEqual({ both: 2, cut: 0, faster: 1, slower: 1, took: 3, waited: 2.5 });
});

test("a job that one of the two did not finish is not judged", () => {
  const cut: Job = { id: "cut", a: side(9, 0), b: side(1, 0, 1) };
  expect(totalsOf([...JOBS, cut])).toEqual({ ...totalsOf(JOBS), cut: 1 });
  expect(orderedJobs([...JOBS, cut], "took", "").map(({ id }) => id)).toEqual(["job2", "job10", "cut", "only"]);
});

test("they are sorted and filtered", () => {
  expect(names("took")).toEqual(["job2", "job10", "only"]);
  expect(names("name")).toEqual(["job2", "job10", "only"]);
  expect(names("waited", "JOB1")).toEqual(["job10"]);
});

test("as CSV what is not known is empty", async () => {
  const lines = (await jobsCsv(JOBS).text()).trim().split("\r\n");
  expect(lines[3]).toBe("only,5,1,0,,,,,");
  expect(lines).toHaveLength(4);
});
