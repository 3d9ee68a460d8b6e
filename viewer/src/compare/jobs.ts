/** The jobs of two traces: which took and waited longer, in what order they are shown, and all of them together. */

import type { Comparison } from "../data/model/comparison";
import { csvLine } from "../export/csv";

export type Job = Comparison["jobs"][number];
type Side = NonNullable<Job["a"]>;

export const MEASURES = {
  took: (side: Side) => side.end - side.begin,
  waited: (side: Side) => side.waited,
} as const;
export type Measure = keyof typeof MEASURES;

/** B less A; NaN where one of the two does not know the job. */
export function change({ a, b }: Job, measure: Measure): number {
  return a && b ? MEASURES[measure](b) - MEASURES[measure](a) : Number.NaN;
}

export interface JobTotals {
  both: number;
  /** Jobs that took less time in B, and more. */
  faster: number;
  slower: number;
  /** Seconds, B less A, over the jobs that both know. */
  took: number;
  waited: number;
}

export function totalsOf(jobs: readonly Job[]): JobTotals {
  const totals: JobTotals = { both: 0, faster: 0, slower: 0, took: 0, waited: 0 };
  for (const job of jobs) {
    const took = change(job, "took");
    if (Number.isNaN(took)) continue;
    totals.both += 1;
    totals.faster += Number(took < 0);
    totals.slower += Number(took > 0);
    totals.took += took;
    totals.waited += change(job, "waited") || 0;
  }
  return totals;
}

/** `took`: largest difference first; `name`: by name; and so on. Jobs that one side does not know stand last. */
export type JobOrder = Measure | "name";

export function orderedJobs(jobs: readonly Job[], order: JobOrder, text: string): Job[] {
  const kept = jobs.filter(({ id }) => id.toLowerCase().includes(text.toLowerCase()));
  const collate = new Intl.Collator("en", { numeric: true }).compare;
  if (order === "name") return kept.sort((x, y) => collate(x.id, y.id));
  const size = (job: Job) => Math.abs(change(job, order));
  return kept.sort((x, y) => {
    const [one, other] = [size(x), size(y)];
    if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return other - one || collate(x.id, y.id);
  });
}

/** Seconds; cells of a side that does not know the job are empty. */
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
