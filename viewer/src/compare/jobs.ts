/** The jobs of two traces: which took and waited longer, in what order they are shown, and all of them together. */

import type { JobDifference, JobSide } from "../data/model/comparison";
import { csvLine } from "../export/csv";

export type Job = JobDifference;

export const MEASURES = {
  took: (side: JobSide) => side.end - side.begin,
  waited: (side: JobSide) => side.waited,
} as const;
export type Measure = keyof typeof MEASURES;

/** Both traces have as many requests of the job, and all of them finished: it did the same in both. */
export function isWhole({ a, b }: Job): boolean {
  return a !== null && b !== null && a.requests === b.requests && [a, b].every((x) => x.finished === x.requests);
}

/** B less A; NaN where one of the two does not know the whole job. */
export function change(job: Job, measure: Measure): number {
  const { a, b } = job;
  return a && b && isWhole(job) ? MEASURES[measure](b) - MEASURES[measure](a) : Number.NaN;
}

export interface JobTotals {
  /** Whole in both. */
  both: number;
  /** In both, but not whole in one of them. */
  cut: number;
  /** Jobs that took less time in B, and more. */
  faster: number;
  slower: number;
  /** Seconds, B less A, over the jobs that are whole in both. */
  took: number;
  waited: number;
}

export function totalsOf(jobs: readonly Job[]): JobTotals {
  const totals: JobTotals = { both: 0, cut: 0, faster: 0, slower: 0, took: 0, waited: 0 };
  for (const job of jobs) {
    const took = change(job, "took");
    if (job.a && job.b && !isWhole(job)) totals.cut += 1;
    if (Number.isNaN(took)) continue;
    totals.both += 1;
    totals.faster += Number(took < 0);
    totals.slower += Number(took > 0);
    totals.took += took;
    totals.waited += change(job, "waited") || 0;
  }
  return totals;
}

/** `took`: largest difference first; `name`: by name; and so on. Jobs that are not whole in both stand last. */
export type JobOrder = Measure | "name";

export function orderedJobs(jobs: readonly Job[], order: JobOrder, text: string): Job[] {
  const kept = jobs.filter(({ id }) => id.toLowerCase().includes(text.toLowerCase()));
  const collate = new Intl.Collator("en", { numeric: true }).compare;
  if (order === "name") return kept.sort((x, y) => collate(x.id, y.id));
  const size = (job: Job) => Math.abs(change(job, order));
  return kept.sort((x, y) => {
    const [one, other] = [size(x), size(y)];
    const known =
      Number.isNaN(one) || Number.isNaN(other) ? Number(Number.isNaN(one)) - Number(Number.isNaN(other)) : 0;
    return known || other - one || collate(x.id, y.id);
  });
}

/** Seconds; cells of a side that does not know the job are empty, and changes of a job that is not whole in both. */
export function jobsCsv(jobs: readonly Job[]): Blob {
  const side = (one: Job["a"]) => [one?.begin ?? null, one ? MEASURES.took(one) : null, one?.waited ?? null];
  const head = [
    "job",
    "a_began",
    "a_took",
    "a_waited",
    "b_began",
    "b_took",
    "b_waited",
    "took_change",
    "waited_change",
  ];
  const rows = jobs.map((job) => [job.id, ...side(job.a), ...side(job.b), change(job, "took"), change(job, "waited")]);
  return new Blob([head, ...rows].map(csvLine), { type: "text/csv" });
}
