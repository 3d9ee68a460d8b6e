/**
 * Who had what a request waited for: the tokens of the steps, the seats (max_num_seqs), the slots for LoRA adapters; and
 * who was admitted before it though it came later.
 */

import { CLASSES, REASONS } from "../generated/vocabulary";
import { secondsOf } from "./lives";
import { MISSING, type RequestIndex, type Row } from "./model/columns";
import type { Trait } from "./model/pressure";
import type { TraceStore } from "./model/trace";
import type { WaitingSplit } from "./model/waiting";

/** One who had it; `request` is -1 where it is an adapter. */
export interface Taker {
  name: string;
  request: RequestIndex;
  /** Tokens, or seconds. */
  amount: number;
  /** Of all that was given out; of seats and slots: of the time. */
  share: number;
}

export interface Takers {
  what: "tokens" | "seats" | "adapters" | "overtook";
  /** Steps that are looked at. */
  steps: number;
  /** Tokens, or seconds, in all. */
  total: number;
  /** Of it what went to requests that the trace, with its bound on ids, does not name. */
  unnamed: number;
  /** Most first. */
  by: Taker[];
}

/** Reasons whose cause is who took the tokens, who sits in the seats, who has the slots. */
const OF_TOKENS: ReadonlySet<string> = new Set([
  ...Object.entries(REASONS).flatMap(([name, { family, holds }]) => (family === "tokens" && holds ? [name] : [])),
  "tok-budget",
]);
const OF_SEATS: ReadonlySet<string> = new Set(["max_num_seqs", "max-seqs"]);
const OF_SLOTS = "lora_slots";

export function isOfTokens(reason: string): boolean {
  return OF_TOKENS.has(reason);
}

export function isOfSeats(reason: string): boolean {
  return OF_SEATS.has(reason);
}

export function isOfSlots(reason: string): boolean {
  return reason === OF_SLOTS;
}

/** The tokens that each request got in a step, most first. */
export function tokenTakers(store: TraceStore, row: Row): Pick<Takers, "total" | "unnamed" | "by"> {
  const { scheduled } = store.lists;
  const [start, size] = [scheduled.starts[row], Math.max(scheduled.counts[row], 0)];
  let named = 0;
  for (let at = start; at < start + size; at++) named += scheduled.tokens[at];
  const total = Math.max(named, store.steps.tokenSum[row]);
  const by = Array.from({ length: size }, (_, at): Taker => {
    const request = scheduled.ids[start + at];
    const amount = scheduled.tokens[start + at];
    return { request, name: store.requests.ids[request], amount, share: total > 0 ? amount / total : 0 };
  }).sort((a, b) => b.amount - a.amount);
  return { total, unnamed: total - named, by };
}

/** The adapter of a request; "" without one. */
export function adapterOf(store: TraceStore, request: RequestIndex): string {
  return store.adapters[store.requests.adapter[request]] ?? "";
}

/** What a request asks for: its adapter, else the model of the run; "" where the trace has neither. */
export function modelOf(store: TraceStore, request: RequestIndex): string {
  return adapterOf(store, request) || (store.start?.model ?? "");
}

/** Whose job it is: what stands before the first `/`, as policies that are fair to users take it; "" without a job. */
export function userOf({ jobs, requests }: TraceStore, request: RequestIndex): string {
  return (jobs.ids[requests.job[request]] ?? "").split("/", 1)[0];
}

/** Whatever it waited for long enough to ask who had it: in the order of time lost. */
export function takersOf(store: TraceStore, split: WaitingSplit): Takers[] {
  const found: Takers[] = [];
  const lost = (test: (reason: string) => boolean) =>
    split.parts.reduce((sum, { reason, us }) => sum + (test(reason) ? us : 0), 0);
  const ways: [number, () => Takers][] = [
    [lost(isOfTokens), () => ofTokens(store, split)],
    [lost(isOfSeats), () => ofSeats(store, split)],
    [lost(isOfSlots), () => ofSlots(store, split)],
  ];
  for (const [us, make] of ways.sort(([a], [b]) => b - a)) if (us > 0) found.push(make());
  found.push(overtakers(store, split));
  return found.filter(({ by }) => by.length > 0);
}

function eachRow(split: WaitingSplit, test: (reason: string) => boolean, visit: (row: Row) => void): number {
  const seen = new Set<Row>();
  for (const { reason, firstRow, lastRow } of split.spans) {
    if (!test(reason) || firstRow < 0) continue;
    for (let row = firstRow; row <= lastRow; row++) {
      if (seen.has(row)) continue;
      seen.add(row);
      visit(row);
    }
  }
  return seen.size;
}

function ofTokens(store: TraceStore, split: WaitingSplit): Takers {
  const { scheduled } = store.lists;
  const sums = new Map<RequestIndex, number>();
  let [total, unnamed] = [0, 0];
  const steps = eachRow(split, isOfTokens, (row) => {
    let named = 0;
    for (let at = scheduled.starts[row]; at < scheduled.starts[row] + scheduled.counts[row]; at++) {
      const request = scheduled.ids[at];
      sums.set(request, (sums.get(request) ?? 0) + scheduled.tokens[at]);
      named += scheduled.tokens[at];
    }
    const all = Math.max(named, store.steps.tokenSum[row]);
    total += all;
    unnamed += all - named;
  });
  return { what: "tokens", steps, total, unnamed, by: ranked(store, sums, total) };
}

function ofSeats(store: TraceStore, split: WaitingSplit): Takers {
  const { running } = store.lists;
  const sums = new Map<RequestIndex, number>();
  let total = 0;
  const steps = eachRow(split, isOfSeats, (row) => {
    const seconds = secondsOf(store, row);
    total += seconds;
    for (let at = running.starts[row]; at < running.starts[row] + running.counts[row]; at++) {
      sums.set(running.ids[at], (sums.get(running.ids[at]) ?? 0) + seconds);
    }
  });
  sums.delete(split.request);
  return { what: "seats", steps, total, unnamed: 0, by: ranked(store, sums, total) };
}

function ofSlots(store: TraceStore, split: WaitingSplit): Takers {
  const { running } = store.lists;
  const sums = new Map<string, number>();
  let total = 0;
  const steps = eachRow(split, isOfSlots, (row) => {
    const seconds = secondsOf(store, row);
    total += seconds;
    const here = new Set<string>();
    for (let at = running.starts[row]; at < running.starts[row] + running.counts[row]; at++) {
      here.add(adapterOf(store, running.ids[at]));
    }
    here.delete("");
    for (const adapter of here) sums.set(adapter, (sums.get(adapter) ?? 0) + seconds);
  });
  const by = [...sums].map(([name, amount]) => ({ name, request: -1, amount, share: total > 0 ? amount / total : 0 }));
  return { what: "adapters", steps, total, unnamed: 0, by: by.sort((a, b) => b.amount - a.amount) };
}

/** Requests that arrived after it and were admitted while it stood in the queue: the amount is the tokens of their prompts. */
function overtakers(store: TraceStore, split: WaitingSplit): Takers {
  const { requests, lists } = store;
  const sums = new Map<RequestIndex, number>();
  const arrived = requests.arrivalTime[split.request];
  const queued = split.spans.filter(({ state, firstRow }) => state === "queued" && firstRow >= 0);
  const rows = queued.length > 0 ? { first: queued[0].firstRow, last: queued[queued.length - 1].lastRow } : null;
  let total = 0;
  for (let row = rows?.first ?? 0; rows && row <= rows.last; row++) {
    const { starts, counts, ids } = lists.scheduledNew;
    for (let at = starts[row]; at < starts[row] + counts[row]; at++) {
      if (!(requests.arrivalTime[ids[at]] > arrived)) continue;
      const prompt = Math.max(requests.promptTokens[ids[at]], 0);
      sums.set(ids[at], prompt);
      total += prompt;
    }
  }
  const steps = rows ? rows.last - rows.first + 1 : 0;
  return { what: "overtook", steps, total, unnamed: 0, by: ranked(store, sums, total) };
}

function ranked(store: TraceStore, sums: ReadonlyMap<RequestIndex, number>, total: number): Taker[] {
  return [...sums]
    .map(([request, amount]) => ({
      ...{ request, name: store.requests.ids[request], amount },
      share: total > 0 ? amount / total : 0,
    }))
    .sort((a, b) => b.amount - a.amount);
}

/** What a request has in common with others: the groups that it is in. */
export function traits(store: TraceStore, request: RequestIndex): [Trait, string][] {
  const { requests, jobs, tenants } = store;
  const found: [Trait, string | undefined][] = [
    ["job", jobs.ids[requests.job[request]]],
    ["req", requests.job[request] < 0 ? /^(.{2,60}?[_\-.:])\d+$/.exec(requests.ids[request])?.[1] : undefined],
    ["user", userOf(store, request)],
    ["tenant", tenants[requests.tenant[request]]],
    ["lora", adapterOf(store, request)],
    ["priority", requests.priority[request] === MISSING ? undefined : String(requests.priority[request])],
  ];
  for (const bound of CLASSES.bounds) {
    if (bound > 0 && requests.promptTokens[request] >= bound) found.push(["prompt", String(bound)]);
    if (bound > 0 && requests.outputTokens[request] >= bound) found.push(["output", String(bound)]);
  }
  return found.filter((trait): trait is [Trait, string] => Boolean(trait[1]));
}
