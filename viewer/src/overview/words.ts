/** The verdict in words: when it was worst, which check, whose requests. */

import { askedBy, kindOf } from "../data/blame";
import { jobAndTurn, shortId } from "../data/labels";
import { MISSING, type Range } from "../data/model/columns";
import type { Blame, BlamedGroup, Had, Stretch, Trait, Victims } from "../data/model/pressure";
import type { Outcomes, Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { Attempts } from "../data/population";
import { endRowOf } from "../data/requestTimes";
import { isCutShort } from "../data/status";
import type { StoreInside } from "../data/store";
import { isOfSeats, traits } from "../data/takers";
import { familyOf, refusedWith } from "../data/wording";
import { count, milliseconds, percent, plural } from "../format";
import { cameForAWhile, kindWords, ofTheRun, sentWords, whenWords } from "./kind";

export { rowsOf } from "../data/pressure";

/** Seconds that requests lost in each second: less is no trouble. */
const NOTICEABLE = 0.01;

export function isQuiet(stretches: readonly Stretch[], statistics: Statistics | null): boolean {
  const lost = stretches.reduce((sum, one) => sum + one.lost, 0);
  return !(lost / (statistics?.seconds ?? Number.NaN) >= NOTICEABLE);
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

/** A number of the scheduler's configuration; null if the trace does not record it. */
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
  return had === "head"
    ? `stood at the head of the queue for ${part} of that time`
    : `were ${part} of the running requests`;
}

export interface Named {
  words: string;
  /** For a list. */
  short: string;
  /** -1: several requests, which the filter means. */
  request: number;
  filter: string;
}

export interface Guilty {
  who: Named;
  /** Null: a single request, or adapters. */
  group: BlamedGroup | null;
  had: string;
  /** When they were sent, where that says something. */
  sent: string;
  /** They are few, and took most of the tokens: they could wait instead. */
  couldWait: boolean;
}

/** Smaller shares are not named: then many did it together. */
const WORTH_NAMING = 0.05;
/** Of a loss: who had most of it is named, though each had little. */
const HALF = 0.5;
/** Of those that got tokens: more are not few. */
const FEW = 0.2;
/** Clients that a gateway can distinguish, and limit however many requests they send. */
const OWNERS: ReadonlySet<Trait> = new Set<Trait>(["tenant", "user", "job"]);
/** A group that always has its part is not what was special. */
const OVER = 1.5;
const MOST_ADAPTERS = 6;
/** Of the time: who had a slot for less did not keep others from it. */
const HELD = 0.1;

/** What was had in a stretch: for want of KV blocks either the blocks, or the head of the queue. */
function hadIn(store: Pick<TraceStore, "shown">, stretch: Pick<Stretch, "shown">, { totals }: Blame): Had | null {
  const had = kindOf(store.shown[stretch.shown]?.name ?? "");
  return had === "blocks" && totals.head > totals.blocks ? "head" : had;
}

/** Whom the loss of a stretch is put down to; null if none stands out. */
export function culpritOf(store: TraceStore, stretch: Stretch, found: Blame): Guilty | null {
  const had = hadIn(store, stretch, found);
  if (!had) return null;
  const all = found.culprits.filter((culprit) => culprit.had === had);
  const groups = found.groups.filter((group) => group.had === had);
  if (had === "slot") return comersOf(store, groups) ?? adaptersOf(groups.filter(({ share }) => share >= HELD));
  const [request] = all;
  const first = request ? store.requests.ids[request.request] : "";
  const couldWait = (share: number, requests: number, of?: Trait) =>
    had === "tokens" && share >= HALF && (requests <= FEW * all.length || (of !== undefined && OWNERS.has(of)));
  const guilty = (group: BlamedGroup): Guilty => ({
    ...{ who: namedGroup(group), group, had: hadWords(had, group.share) },
    sent: sentWords(store, group),
    couldWait: couldWait(group.share, group.requests, group.key),
  });
  // All who ran had a seat: none of them stands out.
  const named = groups.find(
    // Where all requests are called alike their name says nothing.
    ({ key, name, requests }) =>
      requests > 1 && (key === "job" || (key === "req" && first.startsWith(name) && requests < all.length)),
  );
  if (named && had !== "seat" && named.share > 2 * request.share && named.share >= WORTH_NAMING) return guilty(named);
  const group = special(groups);
  if (group && (had === "seat" || group.share > 2 * request.share)) return guilty(group);
  if (request && had !== "seat" && request.share >= WORTH_NAMING) {
    const words = requestWords(store, request.request) + kindWords(askedBy(store, request.request));
    const at = store.requests.arrivalTime[request.request];
    return {
      who: { words, short: "", request: request.request, filter: "" },
      group: null,
      had: hadWords(had, request.share),
      sent: sentWords(store, { all: 1, from: at, to: at }),
      couldWait: couldWait(request.share, 1),
    };
  }
  return null;
}

/** Which things in common say more: of two groups the one that is named by the former. */
const TELLING: readonly BlamedGroup["key"][] = ["job", "user", "tenant", "lora", "req", "priority", "output", "prompt"];

/** A group that had most, and much more than its part of all requests of the trace. */
function special(groups: readonly BlamedGroup[]): BlamedGroup | null {
  const found = groups.filter(({ share, part, requests }) => share >= HALF && share >= OVER * part && requests > 1);
  const over = ({ share, part }: BlamedGroup) => share / part;
  found.sort(
    (a, b) => TELLING.indexOf(a.key) - TELLING.indexOf(b.key) || over(b) - over(a) || Number(b.name) - Number(a.name),
  );
  return found[0] ?? null;
}

const IN_COMMON: Record<Trait, (name: string) => string> = {
  job: (name) => `of ${name}`,
  req: (name) => `of ${name}`,
  user: (name) => `of user ${name}`,
  tenant: (name) => `of tenant ${name}`,
  lora: (name) => `of adapter ${name}`,
  priority: (name) => `of priority ${name}`,
  output: (name) => `with answers of ${count(Number(name))} tokens or more`,
  prompt: (name) => `with prompts of ${count(Number(name))} tokens or more`,
};

/** `24 of the 41 requests of tenant 30a1277d36acea06 (prompts of about 9K tokens, answers of about 120)`. */
function namedGroup({ key, name, requests, all, asked }: BlamedGroup): Named {
  const common = IN_COMMON[key](shortId(name, 30));
  const number = requests < all ? `${count(requests)} of the ${count(all)}` : `the ${count(all)}`;
  const words = `${number} ${key === "job" ? "turns" : "requests"} ${common}${kindWords(asked)}`;
  const filter = filterOf(key, name);
  const short = IN_COMMON[key](shortId(name, 12)).replace(/^(of|with) /, "");
  return {
    words,
    short: `${short}, ${requests < all ? `${count(requests)} of ${count(all)}` : count(all)}`,
    request: -1,
    filter,
  };
}

function filterOf(key: Trait, name: string): string {
  if (key === "prompt" || key === "output") return `${key}:${name}..`;
  return key === "priority" ? `priority:${name}` : `${key}:"${name}"`;
}

/**
 * Who waited: those whose waiting most of it was, else the few that shared it; null if all waited alike.
 * `78.9 % of the waiting was by`, `requests of adapter sql-b and sql-c`.
 */
export function victimsIn(found: Blame): { before: string; words: string; filter: string } | null {
  const { victims } = found;
  if (!victims) return null;
  const { groups, parts } = victims;
  const named = groups.length > 0 ? groups : parts;
  if (named.length === 0) return null;
  const [{ key }] = named;
  const names = named.map(({ name, share }) => shortId(name, 24) + (groups.length > 0 ? "" : ` (${percent(share)})`));
  const last = names.pop() ?? "";
  const said = IN_COMMON[key](names.length > 0 ? `${names.join(", ")} and ${last}` : last);
  const share = named.reduce((sum, one) => sum + one.share, 0);
  return {
    before: groups.length > 0 ? `${percent(share)} of the waiting was by` : "the waiting was by",
    words: `requests ${said}`,
    // Names of one key are alternatives.
    filter: named.map(({ name }) => filterOf(key, name)).join(" "),
  };
}

/** Under priority scheduling: which priority went before which; null if it made no difference. */
export function priorities(
  store: TraceStore,
  victims: Victims | null,
  group: BlamedGroup | null,
): [number, number] | null {
  if (store.policy !== "priority" || !group || victims === null || victims.priority === null) return null;
  const { requests } = store;
  const counts = new Map<number, number>();
  for (let request = 0; request < requests.count; request++) {
    if (!traits(store, request).some(([key, name]) => key === group.key && name === group.name)) continue;
    counts.set(requests.priority[request], (counts.get(requests.priority[request]) ?? 0) + 1);
  }
  const [own] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? [MISSING];
  return own !== MISSING && own < victims.priority ? [own, victims.priority] : null;
}

/**
 * Slots change hands all the time, so who had them says little where some adapters came for a while and others are always asked
 * for: `adapters ja, ko and pl (69 requests)`, `were asked for from 3:32 to 5:10 alone, beside others that always are`.
 */
function comersOf(store: TraceStore, groups: readonly BlamedGroup[]): Guilty | null {
  const comers = groups.filter((group) => cameForAWhile(store, group));
  if (comers.length === 0 || comers.length === groups.length || comers.length > MOST_ADAPTERS) return null;
  const names = comers.map(({ name }) => shortId(name, 24)).sort();
  const last = names.pop() ?? "";
  const several = names.length > 0;
  const requests = comers.reduce((sum, { all }) => sum + all, 0);
  const from = Math.min(...comers.map((comer) => comer.from));
  const to = Math.max(...comers.map((comer) => comer.to));
  const who = `${several ? `adapters ${names.join(", ")} and ${last}` : `adapter ${last}`} (${plural(requests, "request")}${ofTheRun()})`;
  return {
    who: { words: who, short: "", request: -1, filter: comers.map(({ name }) => `lora:"${name}"`).join(" ") },
    group: null,
    had: `${several ? "were" : "was"} asked for ${whenWords(store, from, to)} alone, beside others that always are`,
    ...{ sent: "", couldWait: false },
  };
}

/** `support-v3 (50.0 %), sql-a (37.7 %)`: of the time for which others waited for a slot. */
function adaptersOf(groups: readonly BlamedGroup[]): Guilty | null {
  if (groups.length === 0) return null;
  const more = groups.length > MOST_ADAPTERS ? ` and ${groups.length - MOST_ADAPTERS} more` : "";
  const words = `${groups
    .slice(0, MOST_ADAPTERS)
    .map(({ name, share }) => `${shortId(name, 24)} (${percent(share)})`)
    .join(", ")}${more}`;
  const filter = groups.map(({ name }) => `lora:"${name}"`).join(" ");
  return { who: { words, short: "", request: -1, filter }, group: null, had: "had them", sent: "", couldWait: false };
}

/** Where so much went to requests that the trace does not name, who stands out among the others says little. */
const MOSTLY_UNNAMED = 0.25;

/** Where none stands out: how many shared it, and who had most. */
export function sharedBy(
  store: Pick<TraceStore, "shown">,
  stretch: Pick<Stretch, "shown">,
  found: Blame,
): string | null {
  const had = hadIn(store, stretch, found);
  if (had === null || had === "seat") return null;
  const unnamed = found.unnamed[had] / found.totals[had];
  if (unnamed >= MOSTLY_UNNAMED) {
    return `who had it is not known: ${percent(unnamed)} of it went to requests that the trace does not name`;
  }
  const all = found.culprits.filter((culprit) => culprit.had === had);
  if (all.length < 2) return null;
  return `no request stands out: ${plural(all.length, "request")} shared it, the largest part is ${percent(all[0].share)}`;
}

/** Of less nothing is said. */
const WORTH_A_REST = 0.005;

/** What requests had that the trace does not name. */
export function unnamedWords(store: TraceStore, stretch: Stretch, found: Blame): string | null {
  const had = hadIn(store, stretch, found);
  const share = had ? found.unnamed[had] / found.totals[had] : 0;
  return share >= WORTH_A_REST ? `${percent(share)} went to requests that the trace does not name` : null;
}

/** How long those waited who were cut short, and how many never got a token: clients that hang up do it after one time. */
export function cutShortWords(store: TraceStore, { first, last }: Range): string {
  const { arrivalTime, finishedTime, firstTokenTime, count: all } = store.requests;
  const ages: number[] = [];
  let silent = 0;
  const attempts = new Attempts(store as StoreInside);
  for (let request = 0; request < all; request++) {
    const row = isCutShort(store, request) ? endRowOf(store as StoreInside, request) : -1;
    if (row < first || row > last || attempts.goesOn(request)) continue;
    ages.push(finishedTime[request] - arrivalTime[attempts.firstOf(request)]);
    if (Number.isNaN(firstTokenTime[request])) silent += 1;
  }
  const known = ages.filter((age) => age >= 0).sort((a, b) => a - b);
  const after = known.length > 0 ? `, after ${milliseconds(known[known.length >> 1])} (median)` : "";
  return silent > 0 ? `${after}, ${count(silent)} of them without a token` : after;
}

/** The requests that did not get what they requested, and the filter that means them. */
export const cutShort = ({ cancelled, refused }: Pick<Outcomes, "cancelled" | "refused">): number =>
  cancelled + refused;
export const ERRORS = "status:aborted status:failed status:refused";
