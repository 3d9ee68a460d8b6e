/** The verdict in words: when it was worst, which check, whose requests. */

import { kindOf } from "../data/blame";
import { hasWallClock, wallClock } from "../data/clock";
import { jobAndTurn, shortId } from "../data/labels";
import { MISSING, type Range } from "../data/model/columns";
import type { Blame, Had, Stretch } from "../data/model/pressure";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { endRowOf } from "../data/requestTimes";
import { isCutShort } from "../data/status";
import type { StoreInside } from "../data/store";
import { isOfSeats } from "../data/takers";
import { familyOf, refusedWith } from "../data/wording";
import { count, milliseconds, moment, percent, plural } from "../format";

/** Seconds that requests lost in each second: less is no trouble. */
const NOTICEABLE = 0.01;

export function isQuiet(stretches: readonly Stretch[], statistics: Statistics | null): boolean {
  const lost = stretches.reduce((sum, one) => sum + one.lost, 0);
  return !(lost / (statistics?.seconds ?? Number.NaN) >= NOTICEABLE);
}

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
  if (name === "lora_slots") {
    const slots = settingOf(store, "max_loras");
    return slots === null ? "the slots for LoRA adapters" : `the ${slots} slots for LoRA adapters (max_loras)`;
  }
  return shortId(name, 60);
}

/** `agent_0087, turn 4`. */
export function requestWords(store: TraceStore, request: number): string {
  const job = store.requests.job[request];
  const { turn } = jobAndTurn(store.requests.ids[request], job < 0 ? null : store.jobs.ids[job]);
  if (job < 0 || turn === null) return shortId(store.requests.ids[request], 40);
  return `${shortId(store.jobs.ids[job], 30)}, turn ${turn.replace(/^t/, "")}`;
}

/** A number of the scheduler's configuration; null if the trace does not tell. */
function settingOf({ start }: TraceStore, name: string): string | null {
  const config = start?.config as { scheduler?: Record<string, unknown> } | null | undefined;
  const value = config?.scheduler?.[name];
  return typeof value === "number" ? count(value) : null;
}

/** What a culprit had, of a loss of this kind. */
function hadWords(had: Had, share: number): string {
  const part = percent(share);
  if (had === "tokens") return `took ${part} of its tokens`;
  if (had === "blocks") return `held ${part} of the KV in use`;
  return had === "head" ? `stood at the head of the queue for ${part} of it` : `held a seat for ${part} of it`;
}

export interface Named {
  words: string;
  /** -1: several requests, which the filter means. */
  request: number;
  filter: string;
}

export interface Guilty {
  who: Named;
  had: string;
  /** They are few, and took most of the tokens: they could wait instead. */
  couldWait: boolean;
}

/** Smaller shares name nobody: then many did it together. */
const WORTH_NAMING = 0.05;
/** All who ran had a seat: who had most of them is named. */
const HALF = 0.5;
/** Of those who got tokens: more are not few. */
const FEW = 0.2;
const MOST_ADAPTERS = 6;

/** What was had in a stretch: for want of KV blocks either the blocks, or the head of the queue. */
function hadIn(store: TraceStore, stretch: Stretch, { totals }: Blame): Had | null {
  const had = kindOf(store.shown[stretch.shown]?.name ?? "");
  return had === "blocks" && totals.head > totals.blocks ? "head" : had;
}

/** Whom the loss of a stretch is put down to; null if nobody stands out. */
export function culpritOf(store: TraceStore, stretch: Stretch, found: Blame): Guilty | null {
  const had = hadIn(store, stretch, found);
  if (!had) return null;
  const all = found.culprits.filter((culprit) => culprit.had === had);
  const groups = found.groups.filter((group) => group.had === had);
  if (had === "slot") return adaptersOf(groups.map(({ name }) => name));
  const [request] = all;
  const first = request ? store.requests.ids[request.request] : "";
  const group = groups.find((one) => one.requests > 1 && (one.key === "job" || first.startsWith(one.name)));
  const couldWait = (share: number, requests: number) =>
    had === "tokens" && share >= HALF && requests <= FEW * all.length;
  // Where all requests are called alike their name says nothing.
  const apart = group && (group.key === "job" || group.requests < all.length);
  if (apart && group.share > 2 * request.share && group.share >= (had === "seat" ? HALF : WORTH_NAMING)) {
    const words = `the ${count(group.requests)} ${group.key === "job" ? "turns" : "requests"} of ${shortId(group.name, 30)}`;
    const who = { words, request: -1, filter: `${group.key}:"${group.name}"` };
    return { who, had: hadWords(had, group.share), couldWait: couldWait(group.share, group.requests) };
  }
  if (!request || had === "seat" || request.share < WORTH_NAMING) return null;
  const who = { words: requestWords(store, request.request), request: request.request, filter: "" };
  return { who, had: hadWords(had, request.share), couldWait: couldWait(request.share, 1) };
}

function adaptersOf(names: readonly string[]): Guilty | null {
  if (names.length === 0) return null;
  const more = names.length > MOST_ADAPTERS ? ` and ${names.length - MOST_ADAPTERS} more` : "";
  const words = `${names
    .slice(0, MOST_ADAPTERS)
    .map((name) => shortId(name, 24))
    .join(", ")}${more}`;
  const filter = names.map((name) => `lora:"${name}"`).join(" ");
  return { who: { words, request: -1, filter }, had: "had them", couldWait: false };
}

/** Where nobody stands out: how many shared it, and who had most. */
export function sharedBy(store: TraceStore, stretch: Stretch, found: Blame): string | null {
  const had = hadIn(store, stretch, found);
  const all = had === null || had === "seat" ? [] : found.culprits.filter((culprit) => culprit.had === had);
  if (all.length < 2) return null;
  return `no one stands out: ${plural(all.length, "request")} shared it, the largest part is ${percent(all[0].share)}`;
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
