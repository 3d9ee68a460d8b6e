/** Two traces side by side: where they part, how their figures differ, which rows stand beside each other. */

import { shortId } from "./labels";
import { lanes, membersOf } from "./lives";
import type { Row } from "./model/columns";
import type {
  Alignment,
  Comparison,
  Figure,
  JobDifference,
  JobSide,
  RequestDifference,
  RequestSide,
} from "./model/comparison";
import { BUCKETS } from "./model/reasons";
import type { Spread, Statistics } from "./model/statistics";
import type { TraceStore } from "./model/trace";
import { firstDecision, firstParting } from "./parting";
import { otherWork, requestDifferences } from "./requestDifferences";
import { settingsDifference } from "./settings";
import { inSlices } from "./slices";
import { knownSpread } from "./spread";
import { statistics } from "./statistics";
import { rowAtTime, rowOfStep } from "./store";
import { familyOf } from "./wording";

export async function compare(a: TraceStore, b: TraceStore, signal?: AbortSignal): Promise<Comparison> {
  const [statisticsA, statisticsB] = [
    await statistics(a, { first: 0, last: a.rows - 1 }, signal),
    await statistics(b, { first: 0, last: b.rows - 1 }, signal),
  ];
  const parting = await firstParting(a, b, signal);
  const requests = await requestDifferences(a, b, signal);
  const counts = (side: RequestSide | null, { start }: TraceStore) => side && !(side.begin < (start?.warmup ?? 0));
  const common = requests.filter((each) => each.alike && counts(each.a, a) && counts(each.b, b));
  const all = [statisticsA.outcomes, statisticsB.outcomes];
  const same = all.every(({ arrived }) => arrived === common.length);
  const sides = same
    ? [statisticsA, statisticsB]
    : [withTimesOf(statisticsA, common, "a"), withTimesOf(statisticsB, common, "b")];
  const alikes = new Map(requests.map(({ id, alike, a: inA, b: inB }) => [id, !inA || !inB || alike]));
  return {
    work: workOf(a, b, requests),
    chain: chainOf(statisticsA, statisticsB),
    settings: settingsDifference(a.start, b.start),
    parting,
    decision: parting && (await firstDecision(a, b, Math.min(parting.rowA, parting.rowB), signal)),
    arrived: { a: all[0].arrived, b: all[1].arrived, both: common.length },
    figures: figures(sides[0], sides[1], same && all.every(({ unfinished }) => unfinished === 0)),
    buckets: buckets(statisticsA, statisticsB),
    jobs: await jobDifferences(a, b, alikes),
    requests,
    rowInB: (row, alignment) => beside(a, b, row, alignment),
    rowInA: (row, alignment) => beside(b, a, row, alignment),
  };
}

// -------------------------------------------------------------------------------------------------------- unequal work

function workOf(a: TraceStore, b: TraceStore, requests: Comparison["requests"]): Comparison["work"] {
  const work: Comparison["work"] = { same: 0, other: 0, example: null };
  for (const { id, alike, a: inA, b: inB } of requests) {
    if (!inA || !inB) continue;
    if (alike) work.same += 1;
    else work.other += 1;
    if (!alike) work.example ??= `${shortId(id, 40)}: ${otherWork(a, inA.request, b, inB.request)}`;
  }
  return work;
}

/** Reasons whose difference is worth telling. */
const LINKS = 2;

/** From the cache over the work to the time lost. */
function chainOf(a: Statistics, b: Statistics): Comparison["chain"] {
  const chain: Comparison["chain"] = [];
  const found = ({ prefixHits: hits }: Statistics) => hits.localTokens + hits.externalTokens;
  if (a.prefixHits.promptTokens && b.prefixHits.promptTokens) {
    const [rateA, rateB] = [a, b].map((one) => found(one) / one.prefixHits.promptTokens);
    chain.push({ name: "prompt tokens found in a cache", a: rateA, b: rateB, unit: "share" });
    const [workA, workB] = [a, b].map((one) => one.prefixHits.promptTokens - found(one));
    chain.push({ name: "prompt tokens to compute", a: workA, b: workB, unit: "tokens" });
  }
  if (a.preemptions || b.preemptions) {
    chain.push({ name: "preemptions", a: a.preemptions ?? 0, b: b.preemptions ?? 0, unit: "count" });
  }
  const names = [...new Set([...a.recorded, ...b.recorded].map(({ reason }) => reason))];
  const lost = (one: Statistics, name: string) => one.recorded.find(({ reason }) => reason === name)?.seconds ?? 0;
  const links = names.map((name) => ({ name, a: lost(a, name), b: lost(b, name), unit: "seconds" as const }));
  links.sort((x, y) => Math.abs(y.b - y.a) - Math.abs(x.b - x.a));
  return [...chain, ...links.slice(0, LINKS)].filter((link) => link.a !== link.b);
}

/** The same statistics, with the latencies of the requests that came in both. */
function withTimesOf(all: Statistics, common: readonly RequestDifference[], side: "a" | "b"): Statistics {
  const people = common.flatMap((each) => each[side] ?? []);
  const of = (name: "queue" | "ttft" | "tpot" | "e2e", whole: Spread | null) =>
    // Where the trace does not record them of the whole run, it does not record them of a part.
    whole &&
    knownSpread(
      people.map((each) => each[name]),
      people.map(({ floors }) => floors[name]),
    );
  return {
    ...all,
    queueSeconds: of("queue", all.queueSeconds),
    ttftSeconds: of("ttft", all.ttftSeconds),
    tpotSeconds: of("tpot", all.tpotSeconds),
    e2eSeconds: of("e2e", all.e2eSeconds),
  };
}

// ------------------------------------------------------------------------------------------------------------- figures

/** `alike`: both finished all of the same requests. If not, only what is told of the same requests is better or worse. */
function figures(a: Statistics, b: Statistics, alike: boolean): Figure[] {
  const rows: Figure[] = [];
  const add = (label: string, unit: string, less: boolean | null, of: (some: Statistics) => number | null) =>
    rows.push({ label, unit, a: of(a), b: of(b), lessIsBetter: alike ? less : null });
  const part = (label: string, unit: string, scale: number, of: (some: Statistics) => Spread | null) => {
    for (const which of ["mean", "p50", "p90", "p99"] as const) {
      const value = (some: Statistics) => scaled(of(some)?.[which], scale);
      const atLeast = [a, b].map(
        (some) => of(some)?.atLeast?.includes(which) ?? (!of(some) && some.outcomes.refused > 0),
      );
      rows.push({ label: `${label}, ${which}`, unit, a: value(a), b: value(b), lessIsBetter: true, atLeast });
    }
  };
  add("Steps", "", null, (some) => some.steps);
  add("Time", "s", true, (some) => some.seconds);
  add("Requests arrived", "", null, (some) => some.outcomes.arrived);
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

/** Recorded reasons, most time lost first, then the reconstructed buckets. */
function buckets(a: Statistics, b: Statistics): Comparison["buckets"] {
  const names = [...new Set([...a.recorded, ...b.recorded].map(({ reason }) => reason))];
  const told = names.map((name) => {
    const [inA, inB] = [a, b].map(({ recorded }) => recorded.find(({ reason }) => reason === name));
    const steps = { a: inA?.steps ?? 0, b: inB?.steps ?? 0 };
    return {
      name,
      family: familyOf(name),
      recorded: true,
      ...steps,
      lostA: inA?.seconds ?? 0,
      lostB: inB?.seconds ?? 0,
    };
  });
  told.sort((x, y) => Math.max(y.lostA, y.lostB) - Math.max(x.lostA, x.lostB));
  const guessed = BUCKETS.map((name, i) => ({
    name,
    family: familyOf(name),
    recorded: false,
    a: a.buckets[i],
    b: b.buckets[i],
    lostA: 0,
    lostB: 0,
  }));
  return [...told, ...guessed].filter((row) => row.a > 0 || row.b > 0);
}

async function jobDifferences(
  a: TraceStore,
  b: TraceStore,
  alikes: ReadonlyMap<string, boolean>,
): Promise<JobDifference[]> {
  const rows = new Map<string, JobDifference>();
  for (const [store, side] of [
    [a, "a"],
    [b, "b"],
  ] as const) {
    const found = await lanes(store);
    await inSlices(0, found.count - 1, (lane) => {
      const [job, request] = [found.job[lane], found.request[lane]];
      const id = job >= 0 ? store.jobs.ids[job] : store.requests.ids[request];
      const row = rows.get(id) ?? { id, alike: true, a: null, b: null };
      rows.set(id, row);
      const members = membersOf(store, job, request);
      let finished = 0;
      for (const member of members) row.alike &&= alikes.get(store.requests.ids[member]) ?? true;
      for (const member of members) finished += Number(!Number.isNaN(store.requests.finishedTime[member]));
      const times = { begin: found.begin[lane], end: found.end[lane], waited: found.waited[lane] };
      row[side] = { ...times, requests: members.length, finished };
    });
  }
  const length = (some: JobSide | null) => (some ? some.end - some.begin : 0);
  const change = (row: JobDifference) =>
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
