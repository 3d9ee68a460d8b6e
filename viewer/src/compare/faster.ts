/** Which trace was faster: the jobs or the requests of two traces, their totals, who gained and lost most, and in what order they stand. */

import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { csvLine } from "../export/csv";

export const GROUPS = { jobs: "jobs", requests: "requests" } as const;
export type Group = keyof typeof GROUPS;

export interface Measure {
  key: string;
  title: string;
  meaning: string;
}

const WAITED = { key: "waited", title: "waited", meaning: "queued and preempted, of all its requests" };

/** What is compared of each; by the first it is called faster or slower. */
export const MEASURES: Record<Group, readonly Measure[]> = {
  jobs: [{ key: "took", title: "took", meaning: "from its first arrival to the end of its last request" }, WAITED],
  requests: [
    { key: "e2e", title: "E2E", meaning: "end to end: arrival to end" },
    { ...WAITED, meaning: "queued and preempted" },
    { key: "ttft", title: "TTFT", meaning: "time to first token: arrival to first token" },
  ],
};

/** Seconds by the key of a measure, and when it `began`. */
export type Values = Readonly<Record<string, number>>;

export interface Entry {
  id: string;
  a: Values | null;
  b: Values | null;
  /** It asks for the same in both: prompt length and bound. */
  alike: boolean;
  /** So it does, and both traces have it as a whole. */
  whole: boolean;
}

/** The jobs of a comparison, or its requests. */
export function entriesOf(found: Comparison, group: Group): Entry[] {
  if (group === "jobs") {
    return found.jobs.map(({ id, alike, a, b }) => ({
      ...{ id, alike },
      ...side(a, b, (one) => ({ began: one.begin, took: one.end - one.begin, waited: one.waited })),
      whole:
        alike &&
        a !== null &&
        b !== null &&
        a.requests === b.requests &&
        [a, b].every((x) => x.finished === x.requests),
    }));
  }
  return found.requests.map(({ id, alike, a, b }) => ({
    ...{ id, alike },
    ...side(a, b, ({ begin, e2e, waited, ttft, tpot, floors }) => ({
      ...{ began: begin, e2e, waited, ttft, tpot },
      ...Object.fromEntries(Object.entries(floors).map(([key, least]) => [leastOf(key), least])),
    })),
    whole: alike && a !== null && b !== null && a.finished && b.finished,
  }));
}

/** The key of what a measure is at least that a request has not. */
export function leastOf(key: string): string {
  return `${key}_least`;
}

function side<T>(a: T | null, b: T | null, values: (one: T) => Values): Pick<Entry, "a" | "b"> {
  return { a: a && values(a), b: b && values(b) };
}

/** Which of them both traces can tell of: where no request names a job, only requests. */
export function groupsOf(a: TraceStore, b: TraceStore): Group[] {
  return a.jobs.count + b.jobs.count > 0 ? ["jobs", "requests"] : ["requests"];
}

/** B less A; NaN where one of the two does not know the whole. */
export function change({ a, b, whole }: Entry, key: string): number {
  return a && b && whole ? b[key] - a[key] : Number.NaN;
}

export interface Totals {
  /** Whole in both. */
  both: number;
  /** In both, but not whole in one of them. */
  cut: number;
  /** Those that took less time in B, and more. */
  faster: number;
  slower: number;
  /** Seconds, B less A, over those that are whole in both, by the key of a measure. */
  sums: Record<string, number>;
}

export function totalsOf(entries: readonly Entry[], measures: readonly Measure[]): Totals {
  const totals: Totals = { both: 0, cut: 0, faster: 0, slower: 0, sums: {} };
  for (const entry of entries) {
    const by = change(entry, measures[0].key);
    if (entry.a && entry.b && entry.alike && !entry.whole) totals.cut += 1;
    if (Number.isNaN(by)) continue;
    totals.both += 1;
    totals.faster += Number(by < 0);
    totals.slower += Number(by > 0);
    for (const { key } of measures) {
      totals.sums[key] = (totals.sums[key] ?? 0) + (change(entry, key) || 0);
    }
  }
  return totals;
}

/** Those that gained most in B (`direction` -1), or lost most (1): at most `most` of them. */
export function extremes(entries: readonly Entry[], key: string, direction: 1 | -1, most: number): Entry[] {
  const gain = (entry: Entry) => direction * change(entry, key);
  return entries
    .filter((entry) => gain(entry) > 0)
    .sort((x, y) => gain(y) - gain(x))
    .slice(0, most);
}

/** By what the table is sorted: the name, or a measure of A, of B, or its difference. */
export interface Order {
  key: string;
  of: "name" | "a" | "b" | "change";
  down: boolean;
}

/** Those whose name holds `text`, in order; what is not known stands last. */
export function ordered(entries: readonly Entry[], { key, of, down }: Order, text: string): Entry[] {
  const kept = entries.filter(({ id }) => id.toLowerCase().includes(text.toLowerCase()));
  const collate = new Intl.Collator("en", { numeric: true }).compare;
  const sign = down ? -1 : 1;
  if (of === "name") return kept.sort((x, y) => sign * collate(x.id, y.id));
  const value = (entry: Entry) => (of === "change" ? change(entry, key) : (entry[of]?.[key] ?? Number.NaN));
  return kept.sort((x, y) => {
    const [one, other] = [value(x), value(y)];
    const unknown = Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return unknown || sign * (one - other) || collate(x.id, y.id);
  });
}

/** Seconds; cells of a side that does not know it are empty, and changes of what is not whole in both. */
export function fasterCsv(entries: readonly Entry[], group: Group): Blob {
  const measures = MEASURES[group].map(({ key }) => key);
  const columns = ["began", ...measures];
  const head = [
    group.slice(0, -1),
    ...["a", "b"].flatMap((one) => columns.map((key) => `${one}_${key}`)),
    ...measures.map((key) => `${key}_change`),
  ];
  const rows = entries.map((entry) => [
    entry.id,
    ...[entry.a, entry.b].flatMap((one) => columns.map((key) => one?.[key] ?? null)),
    ...measures.map((key) => change(entry, key)),
  ]);
  return new Blob([head, ...rows].map(csvLine), { type: "text/csv" });
}
