/** Two traces side by side: where they part, how their figures differ, which rows stand beside each other. */

import { count } from "../format";
import { shortId } from "./labels";
import { lanes } from "./lives";
import { type Lists, MISSING, type Row } from "./model/columns";
import type { Alignment, Comparison } from "./model/comparison";
import { BUCKETS } from "./model/reasons";
import type { Spread, Statistics } from "./model/statistics";
import type { TraceStore } from "./model/trace";
import { inSlices } from "./slices";
import { statistics } from "./statistics";
import { rowAtTime, rowOfStep } from "./store";
import { familyOf } from "./wording";

const IDS_SHOWN = 4;

export async function compare(a: TraceStore, b: TraceStore, signal?: AbortSignal): Promise<Comparison> {
  const [statisticsA, statisticsB] = [
    await statistics(a, { first: 0, last: a.rows - 1 }, signal),
    await statistics(b, { first: 0, last: b.rows - 1 }, signal),
  ];
  const parting = await firstParting(a, b, signal);
  return {
    parting,
    figures: figures(statisticsA, statisticsB),
    buckets: buckets(statisticsA, statisticsB),
    jobs: await jobDifferences(a, b),
    rowInB: (row, alignment) => beside(a, b, row, alignment),
    rowInA: (row, alignment) => beside(b, a, row, alignment),
  };
}

// ------------------------------------------------------------------------------------------------------ where they part

async function firstParting(a: TraceStore, b: TraceStore, signal?: AbortSignal): Promise<Comparison["parting"]> {
  let found: Comparison["parting"] = null;
  const rowsInA = Math.min(a.rows, b.rows);
  await inSlices(
    0,
    rowsInA - 1,
    (row) => {
      if (found) return;
      const difference = differenceAt(a, b, row);
      if (difference) found = { rowA: row, rowB: row, ...difference };
    },
    signal,
  );
  if (!found && a.rows !== b.rows && rowsInA > 0) {
    const longer = a.rows > b.rows ? "A" : "B";
    found = {
      rowA: Math.min(rowsInA, a.rows - 1),
      rowB: Math.min(rowsInA, b.rows - 1),
      what: "one ends",
      detail: `${longer} goes on after the last step of ${longer === "A" ? "B" : "A"}`,
    };
  }
  return found;
}

const LISTS = [
  ["running", "running requests"],
  ["waiting", "waiting requests"],
  ["scheduledNew", "requests admitted"],
  ["scheduledResumed", "requests resumed"],
  ["preempted", "requests preempted"],
  ["scheduledRunning", "running requests scheduled"],
  ["scheduled", "tokens per request"],
] as const;

const COUNTS = [
  ["numRunning", "running requests"],
  ["numWaiting", "length of the queue"],
  ["numNew", "requests admitted"],
  ["numResumed", "requests resumed"],
  ["numPreempted", "requests preempted"],
  ["tokenSum", "tokens scheduled"],
  ["freeBlocks", "free blocks"],
] as const;

/** What differs between the same row of two traces, the most telling first: as src/tokenyard/explain/compare does. */
function differenceAt(a: TraceStore, b: TraceStore, row: Row): { what: string; detail: string } | null {
  if (a.steps.number[row] !== b.steps.number[row]) {
    return { what: "step number", detail: inBoth(a.steps.number[row], b.steps.number[row]) };
  }
  for (const [name, what] of LISTS) {
    const detail = listDifference(a, b, a.lists[name], b.lists[name], row);
    if (detail) return { what, detail };
  }
  for (const [name, what] of COUNTS) {
    const [inA, inB] = [a.steps[name][row], b.steps[name][row]];
    if (inA !== inB && inA !== MISSING && inB !== MISSING) return { what, detail: inBoth(inA, inB) };
  }
  return null;
}

function inBoth(a: number, b: number): string {
  return `${count(a)} in A, ${count(b)} in B`;
}

/** Ids of a row's list, each with its tokens where they are listed. */
function listed(store: TraceStore, lists: Lists & { tokens?: ArrayLike<number> }, row: Row): Map<string, number> {
  const found = new Map<string, number>();
  for (let at = lists.starts[row]; at < lists.starts[row] + lists.counts[row]; at++) {
    found.set(store.requests.ids[lists.ids[at]], lists.tokens?.[at] ?? 0);
  }
  return found;
}

function listDifference(a: TraceStore, b: TraceStore, inA: Lists, inB: Lists, row: Row): string | null {
  if (inA.counts[row] === MISSING || inB.counts[row] === MISSING) return null;
  const [idsA, idsB] = [listed(a, inA, row), listed(b, inB, row)];
  const parts = [
    ...only(
      "A",
      [...idsA.keys()].filter((id) => !idsB.has(id)),
    ),
    ...only(
      "B",
      [...idsB.keys()].filter((id) => !idsA.has(id)),
    ),
  ];
  if (parts.length > 0) return parts.join("; ");
  for (const [id, tokens] of idsA) {
    if (tokens !== idsB.get(id)) return `${shortId(id)}: ${inBoth(tokens, idsB.get(id) ?? 0)}`;
  }
  // Tokens stand in no order of their own.
  const ordered = !("tokens" in inA) && [...idsA.keys()].join("\n") !== [...idsB.keys()].join("\n");
  return ordered ? "the same, in another order" : null;
}

function only(side: "A" | "B", ids: string[]): string[] {
  const more = ids.length > IDS_SHOWN ? ` and ${count(ids.length - IDS_SHOWN)} more` : "";
  const shown = ids.slice(0, IDS_SHOWN).map((id) => shortId(id));
  return ids.length > 0 ? [`only in ${side}: ${shown.join(", ")}${more}`] : [];
}

// ------------------------------------------------------------------------------------------------------------- figures

function figures(a: Statistics, b: Statistics): Comparison["figures"] {
  const rows: Comparison["figures"] = [];
  const add = (label: string, unit: string, less: boolean | null, of: (some: Statistics) => number | null) =>
    rows.push({ label, unit, a: of(a), b: of(b), lessIsBetter: less });
  const part = (label: string, unit: string, scale: number, of: (some: Statistics) => Spread | null) => {
    for (const which of ["mean", "p50", "p90", "p99"] as const) {
      add(`${label}, ${which}`, unit, true, (some) => scaled(of(some)?.[which], scale));
    }
  };
  add("Steps", "", null, (some) => some.steps);
  add("Time", "s", true, (some) => some.seconds);
  add("Requests finished", "", null, (some) => some.finished);
  add("Requests per second", "1/s", false, (some) => some.requestsPerSecond);
  add("Output tokens per second", "tok/s", false, (some) => some.tokensPerSecond);
  part("Queue time", "ms", 1e3, (some) => some.queueSeconds);
  part("Time to first token", "ms", 1e3, (some) => some.ttftSeconds);
  part("Time per output token", "ms", 1e3, (some) => some.tpotSeconds);
  part("End to end", "ms", 1e3, (some) => some.e2eSeconds);
  add("Prefix hit rate, local", "%", false, (some) => hitRate(some, some.prefixHits.localTokens));
  add("Prefix hit rate, connector", "%", false, (some) => hitRate(some, some.prefixHits.externalTokens));
  add("Token budget used, mean", "%", null, (some) => scaled(some.tokenBudget.mean, 100));
  add("Running, mean", "", null, (some) => some.running?.mean ?? null);
  add("Waiting, mean", "", true, (some) => some.waiting?.mean ?? null);
  add("Peak KV usage", "%", null, (some) => scaled(some.peakKvUse, 100));
  add("Preemptions", "", true, (some) => some.preemptions);
  add("Recomputed tokens", "tok", true, (some) => some.recomputedTokens);
  return rows.filter((row) => row.a !== null || row.b !== null);
}

function scaled(value: number | null | undefined, scale: number): number | null {
  return value === null || value === undefined ? null : value * scale;
}

function hitRate({ prefixHits }: Statistics, tokens: number): number | null {
  return prefixHits.promptTokens > 0 ? (100 * tokens) / prefixHits.promptTokens : null;
}

/** Steps per bucket, then steps per recorded reason. */
function buckets(a: Statistics, b: Statistics): Comparison["buckets"] {
  const guessed = BUCKETS.map((name, i) => ({
    name,
    family: familyOf(name),
    recorded: false,
    a: a.buckets[i],
    b: b.buckets[i],
  }));
  const names = [...new Set([...a.recorded, ...b.recorded].map(({ reason }) => reason))];
  const steps = (some: Statistics, name: string) => some.recorded.find(({ reason }) => reason === name)?.steps ?? 0;
  const told = names.map((name) => ({
    name,
    family: familyOf(name),
    recorded: true,
    a: steps(a, name),
    b: steps(b, name),
  }));
  return [...guessed, ...told].filter((row) => row.a > 0 || row.b > 0);
}

async function jobDifferences(a: TraceStore, b: TraceStore): Promise<Comparison["jobs"]> {
  const rows = new Map<string, Comparison["jobs"][number]>();
  for (const [store, side] of [
    [a, "a"],
    [b, "b"],
  ] as const) {
    const found = await lanes(store);
    await inSlices(0, found.count - 1, (lane) => {
      const id = found.job[lane] >= 0 ? store.jobs.ids[found.job[lane]] : store.requests.ids[found.request[lane]];
      let row = rows.get(id);
      if (!row) {
        row = { id, a: null, b: null };
        rows.set(id, row);
      }
      row[side] = { begin: found.begin[lane], end: found.end[lane], waited: found.waited[lane] };
    });
  }
  const length = (some: { begin: number; end: number } | null) => (some ? some.end - some.begin : 0);
  const change = (row: Comparison["jobs"][number]) =>
    row.a && row.b ? Math.abs(length(row.a) - length(row.b)) : Number.POSITIVE_INFINITY;
  return [...rows.values()].sort((x, y) => {
    const difference = change(y) - change(x);
    return Number.isNaN(difference) || difference === 0 ? (x.id < y.id ? -1 : 1) : difference;
  });
}

// ------------------------------------------------------------------------------------------------------ side by side

/** The row of `other` that stands beside a row of `one`; -1 if there is none. */
function beside(one: TraceStore, other: TraceStore, row: Row, alignment: Alignment): Row {
  if (row < 0 || row >= one.rows || other.rows === 0) return -1;
  switch (alignment) {
    case "step": {
      const found = rowOfStep(other, one.steps.number[row]);
      return found >= 0 && other.steps.number[found] === one.steps.number[row] ? found : -1;
    }
    case "time": {
      const since = one.steps.ts[row] - one.steps.ts[0];
      const until = other.steps.ts[other.rows - 1] - other.steps.ts[0];
      return since > until ? -1 : rowAtTime(other, other.steps.ts[0] + since);
    }
    case "job":
      return besideByJob(one, other, row);
  }
}

/** The row at which the job that was last admitted at or before `row` gets as far in the other trace. */
function besideByJob(one: TraceStore, other: TraceStore, row: Row): Row {
  for (let back = row; back >= 0; back--) {
    const { scheduledNew } = one.lists;
    if (scheduledNew.counts[back] <= 0) continue;
    const request = scheduledNew.ids[scheduledNew.starts[back]];
    const same = rowOfAdmission(one, other, request);
    if (same >= 0) return Math.min(same + (row - back), other.rows - 1);
  }
  return -1;
}

const admissions = new WeakMap<TraceStore, Map<string, Row>>();

/** When a request of one trace is first admitted in the other: by its id, else by the turn of its job. */
function rowOfAdmission(one: TraceStore, other: TraceStore, request: number): Row {
  let rows = admissions.get(other);
  if (!rows) {
    rows = new Map();
    for (let row = 0; row < other.rows; row++) {
      const { scheduledNew } = other.lists;
      for (let i = 0; i < scheduledNew.counts[row]; i++) {
        rows.set(other.requests.ids[scheduledNew.ids[scheduledNew.starts[row] + i]], row);
      }
    }
    admissions.set(other, rows);
  }
  return rows.get(one.requests.ids[request]) ?? -1;
}
