/** From a filter to the rows and requests it lets through, in slices so that nothing stands still. */

import { type Lists, MISSING, type Range } from "../data/model/columns";
import { BUCKETS, NO_REASON, type ShownReason, STEP_REASONS } from "../data/model/reasons";
import type { TraceStore } from "../data/model/trace";
import { inSlices } from "../data/slices";
import { statusOf } from "../data/status";
import { adapterOf, modelOf, userOf } from "../data/takers";
import { nameOfEngine } from "./engines";
import { COUNTS, type Count, type Filter, type Term, TRAITS, type Trait } from "./filter";
import { MEASURES, type Measure, measureTest } from "./measures";
import type { Matches } from "./store";
import { lostTo, TIMES, type Time, timeOf } from "./times";

/** Rows looked at between two looks at the clock, and milliseconds that a slice may take. */
const BATCH = 4_096;
const SLICE_MS = 10;

/** What a filter lets through. Rejects with the signal's reason if it is aborted. */
export async function findMatches(store: TraceStore, filter: Filter, signal: AbortSignal): Promise<Matches> {
  if (filter.terms.length === 0) return { rows: null, requests: null };
  const requests = await requestMask(store, filter.terms, signal);
  // A minus means steps without such a request: others that stand beside it do not bring them back.
  const [wanted, unwanted] = [false, true].map((negated) =>
    filter.terms.filter((term) => term.negated === negated).map((term) => ({ ...term, negated: false })),
  );
  const present = unwanted.some(({ key }) => OF_REQUESTS.has(key))
    ? await requestMask(store, wanted, signal)
    : requests;
  const absent: Uint8Array[] = [];
  for (const term of unwanted) {
    const mask = await requestMask(store, [term], signal);
    if (mask) absent.push(mask);
  }
  const passes = rowTest(store, filter.terms, present, absent);
  const found = new Int32Array(store.rows);
  let kept = 0;
  let began = performance.now();
  for (let row = 0; row < store.rows; row++) {
    if (passes(row)) found[kept++] = row;
    if (row % BATCH === BATCH - 1 && performance.now() - began > SLICE_MS) {
      await new Promise((resolve) => setTimeout(resolve));
      signal.throwIfAborted();
      began = performance.now();
    }
  }
  return { rows: found.slice(0, kept), requests };
}

/** 1 for each request that the filter means, in views of requests; null for all. */
export async function meantMask(
  store: TraceStore,
  filter: Filter,
  signal: AbortSignal,
  within: Range | null,
): Promise<Uint8Array | null> {
  const named = await requestMask(store, filter.terms, signal);
  const lost = await lostMask(store, filter, signal, within);
  return named && lost ? named.map((meant, at) => meant & lost[at]) : (named ?? lost);
}

/** 1 for each request that lost time, in some rows or ever, to one of the `reason:` terms and to none of those with a minus. */
export async function lostMask(
  store: TraceStore,
  filter: Filter,
  signal: AbortSignal,
  within: Range | null,
): Promise<Uint8Array | null> {
  const reasons = filter.terms.filter(({ key }) => key === "reason");
  if (reasons.length === 0) return null;
  const mask = new Uint8Array(store.requests.count);
  const look = (request: number) => {
    mask[request] = decide(reasons, ({ value }) => lostTo(store, value, request, within)) ? 1 : 0;
  };
  await inSlices(0, mask.length - 1, look, signal);
  return mask;
}

const OF_REQUESTS: ReadonlySet<string> = new Set(["job", "req", "text", ...TRAITS, ...COUNTS, ...TIMES]);

/** 1 for each request that the `job:`, `req:` and plain terms, and those of its times, mean; null without such a term. */
export async function requestMask(
  store: TraceStore,
  terms: readonly Term[],
  signal?: AbortSignal,
): Promise<Uint8Array | null> {
  const wanted = terms.filter((term) => OF_REQUESTS.has(term.key));
  if (wanted.length === 0) return null;
  const { requests, jobs } = store;
  const jobHits = new Map<Term, Uint8Array>();
  for (const term of wanted) {
    if (term.key !== "job" && term.key !== "text") continue;
    const hits = new Uint8Array(jobs.count);
    for (let job = 0; job < jobs.count; job++) if (jobs.ids[job].toLowerCase().includes(term.value)) hits[job] = 1;
    jobHits.set(term, hits);
  }
  const mask = new Uint8Array(requests.count);
  const look = (request: number) => {
    const job = requests.job[request];
    const id = requests.ids[request].toLowerCase();
    const meant = (term: Term) => {
      if (isTime(term.key)) {
        const seconds = timeOf(store, term.key, request);
        return seconds >= term.from && seconds <= term.to;
      }
      if (isCount(term.key)) {
        const value = store.requests[COLUMNS[term.key]][request];
        return value !== MISSING && value >= term.from && value <= term.to;
      }
      if (isTrait(term.key)) return traitOf(store, term.key, request).toLowerCase().includes(term.value);
      return (job >= 0 && jobHits.get(term)?.[job] === 1) || (term.key !== "job" && id.includes(term.value));
    };
    mask[request] = decide(wanted, meant) ? 1 : 0;
  };
  await inSlices(0, requests.count - 1, look, signal);
  return mask;
}

/** One of each key's positive terms has to hold, and no negated one. */
function decide(terms: readonly Term[], holds: (term: Term) => boolean): boolean {
  const keys = new Map<string, boolean>();
  for (const term of terms) {
    if (term.negated) {
      if (holds(term)) return false;
    } else if (!keys.get(term.key)) keys.set(term.key, holds(term));
  }
  for (const found of keys.values()) if (!found) return false;
  return true;
}

function rowTest(
  store: TraceStore,
  terms: readonly Term[],
  mask: Uint8Array | null,
  absent: readonly Uint8Array[],
): (row: number) => boolean {
  const { number } = store.steps;
  const steps = terms.filter((term) => term.key === "step");
  const reasons = reasonTest(
    store,
    terms.filter((term) => term.key === "reason"),
  );
  const present = mask && presence(store, mask);
  const gone = absent.map((one) => presence(store, one));
  const figures = figureTests(store, terms);
  return (row) =>
    decide(steps, (term) => number[row] >= term.from && number[row] <= term.to) &&
    (!reasons || reasons(row)) &&
    (!present || present(row)) &&
    !gone.some((test) => test(row)) &&
    (!figures || figures(row));
}

/** The terms that figures of the other views lead to: numbers, buckets, and guess against truth. */
function figureTests(store: TraceStore, terms: readonly Term[]): ((row: number) => boolean) | null {
  const tests = new Map<Term, (row: number) => boolean>();
  for (const term of terms) {
    if (isMeasure(term.key)) tests.set(term, measureTest(store, term.key, term));
    else if (term.key === "bucket") tests.set(term, bucketTest(store, term.value));
    else if (term.key === "disagree") tests.set(term, pairTest(store, term.value));
  }
  if (tests.size === 0) return null;
  const asked = [...tests.keys()];
  return (row) => decide(asked, (term) => tests.get(term)?.(row) ?? false);
}

const COLUMNS = { priority: "priority", prompt: "promptTokens", output: "outputTokens" } as const;

function isCount(key: string): key is Count {
  return (COUNTS as readonly string[]).includes(key);
}

function isTrait(key: string): key is Trait {
  return (TRAITS as readonly string[]).includes(key);
}

/** What a request is, by a key of the filter: "" where it has none. */
export function traitOf(store: TraceStore, trait: Trait, request: number): string {
  switch (trait) {
    case "status":
      return statusOf(store, request);
    case "lora":
      return adapterOf(store, request);
    case "model":
      return modelOf(store, request);
    case "tenant":
      return store.tenants[store.requests.tenant[request]] ?? "";
    case "user":
      return userOf(store, request);
    case "rank":
      return nameOfEngine(store);
  }
}

function isTime(key: string): key is Time {
  return (TIMES as readonly string[]).includes(key);
}

function isMeasure(key: string): key is Measure {
  return (MEASURES as readonly string[]).includes(key);
}

function bucketTest({ steps }: TraceStore, part: string): (row: number) => boolean {
  const hits = BUCKETS.map((name) => name.includes(part));
  return (row) => hits[steps.bucket[row]];
}

/** `alloc-frag/kv_blocks`: steps guessed to be the one whose recorded reason is the other. */
function pairTest({ steps, outcomes, reasonNames }: TraceStore, pair: string): (row: number) => boolean {
  const [guess, ...rest] = pair.split("/");
  const bucket = (BUCKETS as readonly string[]).indexOf(guess);
  const reason = reasonNames.map((name) => name.toLowerCase()).indexOf(rest.join("/"));
  return (row) =>
    bucket >= 0 &&
    reason >= 0 &&
    steps.bucket[row] === bucket &&
    steps.outcome[row] >= 0 &&
    outcomes.mainReason[steps.outcome[row]] === reason;
}

/**
 * A term means a step if its name is part of what the step is shown as, of its bucket, of its reconstructed reason, or
 * of a recorded reason, also of one that only passed a request over.
 */
function reasonTest(store: TraceStore, terms: readonly Term[]): ((row: number) => boolean) | null {
  if (terms.length === 0) return null;
  const { shown, bucket, stepReason, outcome } = store.steps;
  const tables = new Map(
    terms.map((term) => {
      const part = (name: string) => name.toLowerCase().includes(term.value);
      const shownHits = store.shown.map((reason: ShownReason) => part(reason.name) || reason.family === term.value);
      const recorded = store.reasonNames.map(part);
      return [term, { shownHits, buckets: BUCKETS.map(part), reasons: STEP_REASONS.map(part), recorded }] as const;
    }),
  );
  return (row) =>
    decide(terms, (term) => {
      const table = tables.get(term);
      if (!table) return false;
      return (
        table.shownHits[shown[row]] ||
        table.buckets[bucket[row]] ||
        (stepReason[row] !== NO_REASON && table.reasons[stepReason[row]]) ||
        (outcome[row] >= 0 && hasReason(store, outcome[row], table.recorded))
      );
    });
}

function hasReason({ outcomes }: TraceStore, at: number, wanted: readonly boolean[]): boolean {
  const reason = outcomes.reason[at];
  if (reason >= 0 && wanted[reason] && outcomes.held[at] !== 0) return true;
  const { starts, counts, ids } = outcomes.byReason;
  for (let i = starts[at]; i < starts[at] + Math.max(counts[at], 0); i++) if (wanted[ids[i]]) return true;
  return false;
}

/** Is one of the masked requests in a queue at a row? Rows that share their lists are looked at once. */
function presence(store: TraceStore, mask: Uint8Array): (row: number) => boolean {
  const inRunning = anyOf(store.lists.running, mask);
  const inWaiting = anyOf(store.lists.waiting, mask);
  return (row) => inRunning(row) || inWaiting(row);
}

function anyOf(lists: Lists, mask: Uint8Array): (row: number) => boolean {
  const { starts, counts, ids } = lists;
  let lastStart = -1;
  let lastCount = -1;
  let last = false;
  return (row) => {
    const start = starts[row];
    const count = counts[row];
    if (count === MISSING || count === 0) return false;
    if (start === lastStart && count === lastCount) return last;
    last = false;
    for (let at = start; at < start + count && !last; at++) last = mask[ids[at]] === 1;
    lastStart = start;
    lastCount = count;
    return last;
  };
}
