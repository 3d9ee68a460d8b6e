/** The verdict in words: when it was worst, which check, whose requests. */

import { hasWallClock, wallClock } from "../data/clock";
import { jobAndTurn, shortId } from "../data/labels";
import { MISSING, type Range } from "../data/model/columns";
import type { Blame, Culprit, Stretch } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { endRowOf } from "../data/requestTimes";
import { isCutShort } from "../data/status";
import type { StoreInside } from "../data/store";
import { isOfSeats, isOfTokens } from "../data/takers";
import { familyOf, refusedWith } from "../data/wording";
import { count, milliseconds, moment, percent, plural } from "../format";

/** `7:32`, or `14:03:07` where the trace has the wall's clock. */
export function clockText(store: TraceStore, origin: number, ts: number): string {
  return hasWallClock(store) ? wallClock(ts) : moment(ts - origin);
}

/** `the token budget (2,048 tokens a step)`. */
export function reasonWords(store: TraceStore, name: string): string {
  const { steps, rows } = store;
  const last = Math.max(rows - 1, 0);
  if (name === "token_budget" || name === "tok-budget") {
    const budget = steps.tokenBudget[last];
    return budget > 0 && budget !== MISSING ? `the token budget (${count(budget)} tokens a step)` : "the token budget";
  }
  if (isOfSeats(name)) {
    const most = steps.maxRunning[last];
    return most > 0 && most !== MISSING ? `max_num_seqs (${count(most)} running)` : "max_num_seqs";
  }
  if (familyOf(name) === "memory") return `missing KV blocks (${shortId(name, 40)})`;
  if (name.startsWith(refusedWith(""))) return `the policy (${shortId(name.slice(refusedWith("").length), 40)})`;
  if (name === "lora_slots") return "the slots for LoRA adapters";
  return shortId(name, 60);
}

/** `agent_0087, turn 4`. */
export function requestWords(store: TraceStore, request: number): string {
  const job = store.requests.job[request];
  const { turn } = jobAndTurn(store.requests.ids[request], job < 0 ? null : store.jobs.ids[job]);
  if (job < 0 || turn === null) return shortId(store.requests.ids[request], 40);
  return `${shortId(store.jobs.ids[job], 30)}, turn ${turn.replace(/^t/, "")}`;
}

/** What a culprit had, of a loss of this kind. */
export function hadWords(had: Culprit["had"], share: number): string {
  const part = percent(share);
  if (had === "tokens") return `took ${part} of its tokens`;
  return had === "head" ? `stood at the head of the queue for ${part} of it` : `held a seat for ${part} of it`;
}

export interface Named {
  words: string;
  /** -1: several requests, which the filter means. */
  request: number;
  filter: string;
}

/** Smaller shares name nobody: then many did it together. */
const WORTH_NAMING = 0.05;
/** All who ran had a seat: who had most of them is named. */
const HALF = 0.5;

/** Whom the loss of a stretch is put down to; null if nobody stands out. */
export function culpritOf(store: TraceStore, stretch: Stretch, found: Blame): { who: Named; had: string } | null {
  const had = kindOf(store.shown[stretch.shown]?.name ?? "");
  if (!had) return null;
  const request = found.culprits.find((culprit) => culprit.had === had);
  const first = request ? store.requests.ids[request.request] : "";
  const named = (one: Blame["jobs"][number]) => one.job >= 0 || first.startsWith(one.name);
  const job = found.jobs.find((one) => one.had === had && one.requests > 1 && named(one));
  // Where all requests are called alike their name says nothing.
  const apart = job && (job.job >= 0 || found.jobs.filter((one) => one.had === had).length > 1);
  if (apart && request && job.share > 2 * request.share && job.share >= (had === "seat" ? HALF : WORTH_NAMING)) {
    const [what, key] = job.job < 0 ? ["requests", "req"] : ["turns", "job"];
    const words = `the ${count(job.requests)} ${what} of ${shortId(job.name, 30)}`;
    return { who: { words, request: -1, filter: `${key}:"${job.name}"` }, had: hadWords(had, job.share) };
  }
  if (!request || had === "seat" || request.share < WORTH_NAMING) return null;
  const words = requestWords(store, request.request);
  return { who: { words, request: request.request, filter: "" }, had: hadWords(had, request.share) };
}

/** Where nobody stands out: how many shared it, and who had most. */
export function sharedBy(store: TraceStore, stretch: Stretch, found: Blame): string | null {
  const had = kindOf(store.shown[stretch.shown]?.name ?? "");
  const all = had === null || had === "seat" ? [] : found.culprits.filter((culprit) => culprit.had === had);
  if (all.length < 2) return null;
  return `no one stands out: ${plural(all.length, "request")} shared it, the largest part is ${percent(all[0].share)}`;
}

function kindOf(name: string): Culprit["had"] | null {
  if (isOfTokens(name)) return "tokens";
  if (isOfSeats(name)) return "seat";
  return familyOf(name) === "memory" ? "head" : null;
}

/** How long those waited who were cut short, and how many never got a token: clients that hang up do it after one time. */
export function cutShortWords(store: TraceStore, { first, last }: Range): string {
  const { arrivalTime, finishedTime, firstTokenTime, count: all } = store.requests;
  const ages: number[] = [];
  let silent = 0;
  for (let request = 0; request < all; request++) {
    const row = isCutShort(store, request) ? endRowOf(store as StoreInside, request) : -1;
    if (row < first || row > last) continue;
    ages.push(finishedTime[request] - arrivalTime[request]);
    if (Number.isNaN(firstTokenTime[request])) silent += 1;
  }
  const known = ages.filter((age) => age >= 0).sort((a, b) => a - b);
  const after = known.length > 0 ? `, after ${milliseconds(known[known.length >> 1])} (median)` : "";
  return silent > 0 ? `${after}, ${count(silent)} of them without a token` : after;
}

/** `aborted`: the requests that did not get what they asked for. */
export function cutShort(ends: readonly { reason: string; requests: number }[]): number {
  return ends.reduce((sum, { reason, requests }) => sum + (reason === "abort" || reason === "error" ? requests : 0), 0);
}
