/** The evidence of each rule, in the words of src/tokenyard/explain/advice/evidence.py; shared vectors keep them equal. */

import { count, duration, fixed } from "../format";
import { type Held, type Symptoms, settingOf } from "./symptoms";

/** Why a rule applies. */
export interface Evidence {
  text: string;
  lostSeconds: number | null;
}

/** Share of all requests' time that a reason must have cost, and the steps it must have taken. */
const NOTICEABLE = 0.02;
const FEWEST_STEPS = 10;
/** Share of the KV blocks that must be free before more sequences are advised. */
const ROOM = 0.2;
/** How many times as long as decode alone a step with a large prefill takes where its tokens are what takes the time. */
const COMPUTE_BOUND = 3;
/** Share of a conversation's prompt tokens found cached; where nothing is evicted it is 80 to 95 %. */
const FEW_HITS = 0.6;
const MEMORY = ["kv_full_sequence", "kv_blocks"];

/** The worst of some reasons, if it has cost enough to speak of. */
function noticeable(symptoms: Symptoms, ...names: string[]): Held | null {
  let worst: Held | null = null;
  for (const name of names) {
    const held = Object.hasOwn(symptoms.reasons, name) ? symptoms.reasons[name] : null;
    if (held && (!worst || held.seconds > worst.seconds)) worst = held;
  }
  if (!worst || worst.steps < FEWEST_STEPS || worst.seconds < NOTICEABLE * symptoms.requestSeconds) return null;
  return worst;
}

function percent(share: number): string {
  return `${fixed(100 * share, 0)} %`;
}

function of(some: number, all: number, what: string): string {
  return `${count(some)} of ${count(all)} ${what}`;
}

function setting(symptoms: Symptoms, name: string): string {
  const value = settingOf(symptoms, name);
  return value === null || value === undefined ? "None" : String(value);
}

/** The common shape: so many steps did `what`, and what it cost. */
function stops(symptoms: Symptoms, held: Held, what: string): Evidence {
  const seem = symptoms.guessed ? "seem to have " : "";
  const { requestSeconds } = symptoms;
  const cost = requestSeconds
    ? `; requests lost ${duration(held.seconds)} to it, ${percent(held.seconds / requestSeconds)} of their time.`
    : ".";
  return { text: `${of(held.steps, symptoms.steps, "steps")} ${seem}${what}${cost}`, lostSeconds: held.seconds };
}

export function seats(symptoms: Symptoms): Evidence | null {
  const held = noticeable(symptoms, "max_num_seqs");
  if (!held || held.kvFree === null || held.kvFree < ROOM || preempts(symptoms)) return null;
  const limit = setting(symptoms, "max_num_seqs");
  return stops(symptoms, held, `stopped at max_num_seqs = ${limit} with ${percent(held.kvFree)} of KV free`);
}

export function tokenBudget(symptoms: Symptoms): Evidence | null {
  return computeBound(symptoms) ? null : budgetSpent(symptoms);
}

export function compute(symptoms: Symptoms): Evidence | null {
  const { mixedMs: mixed, decodeMs: decode } = symptoms;
  const spent = computeBound(symptoms) ? budgetSpent(symptoms) : null;
  if (!spent || !mixed || !decode) return null;
  const text =
    `${spent.text} Steps with large prefills take ${fixed(mixed / decode, 1)} times as long as ` +
    `decode alone (${fixed(mixed, 1)} ms against ${fixed(decode, 1)} ms).`;
  return { text, lostSeconds: spent.lostSeconds };
}

function computeBound(symptoms: Symptoms): boolean {
  const { mixedMs: mixed, decodeMs: decode, mixedSteps } = symptoms;
  return !!mixed && !!decode && mixedSteps >= FEWEST_STEPS && mixed >= COMPUTE_BOUND * decode;
}

function budgetSpent(symptoms: Symptoms): Evidence | null {
  const limit = setting(symptoms, "max_num_batched_tokens");
  const what = `spent all of max_num_batched_tokens = ${limit} and left requests without tokens`;
  return heldBy("token_budget", what)(symptoms);
}

export const wholePrompts = heldBy(
  "prefill_exceeds_budget",
  "stopped at a prompt longer than what was left of the budget",
);

export const watermark = heldBy("kv_watermark", "kept blocks free for the watermark alone");

export function memory(symptoms: Symptoms): Evidence | null {
  const held = noticeable(symptoms, ...MEMORY);
  if (!held) return null;
  if (!held.kv) return stops(symptoms, held, "stopped for want of KV blocks");
  const { needed, free } = held.kv;
  const what = `stopped for want of KV blocks: the head needed ${fixed(needed, 0)}, ${fixed(free, 0)} were free`;
  return stops(symptoms, held, what);
}

export function order(symptoms: Symptoms): Evidence | null {
  const held = noticeable(symptoms, ...MEMORY);
  const kv = held?.kv;
  if (!held || !kv || kv.smallestNeed === null) return null;
  const fits = kv.smallerWouldFitSteps;
  if (fits < 0.25 * held.steps) return null;
  const text =
    `In ${of(fits, held.steps, "steps that stopped for want of KV blocks")}, the smallest waiting request would ` +
    `have fitted: it needed ${fixed(kv.smallestNeed, 0)} blocks where the head needed ${fixed(kv.needed, 0)}.`;
  return { text, lostSeconds: (held.seconds * fits) / held.steps };
}

export function fullSequence(symptoms: Symptoms): Evidence | null {
  const held = noticeable(symptoms, "kv_full_sequence");
  if (!held || held.kvFree === null || held.kvFree < ROOM || preempts(symptoms)) return null;
  const what =
    `refused a request whose whole sequence did not fit, with ${percent(held.kvFree)} of KV free and ` +
    `${count(symptoms.preemptions ?? 0)} preemptions`;
  return stops(symptoms, held, what);
}

/** Preemptions are more than an accident: one request in twenty, or one token in twenty computed again. */
function preempts(symptoms: Symptoms): boolean {
  const again = symptoms.recomputedTokens ?? 0;
  const scheduled = symptoms.scheduledTokens ?? 0;
  const often = (symptoms.preemptions ?? 0) >= Math.max(0.05 * (symptoms.requests ?? 0), FEWEST_STEPS);
  return often || (scheduled > 0 && again >= 0.05 * scheduled);
}

export function preemptions(symptoms: Symptoms): Evidence | null {
  if (!preempts(symptoms)) return null;
  const { recomputedTokens: again, scheduledTokens: scheduled, requests } = symptoms;
  let text = `Running requests lost their blocks ${count(symptoms.preemptions ?? 0)} times`;
  if (requests) text += ` (${count(requests)} requests)`;
  if (again && scheduled) text += `; ${count(again)} tokens were computed again, ${percent(again / scheduled)} of all`;
  return { text: `${text}.`, lostSeconds: symptoms.reasons["preempted_this_step"]?.seconds ?? null };
}

export function longPrefills(symptoms: Symptoms): Evidence | null {
  const { mixedMs: mixed, decodeMs: decode, tpotP50Ms: median, tpotP99Ms: slow, mixedSteps, steps } = symptoms;
  if (mixed === null || decode === null || !median || slow === null) return null;
  if (mixedSteps < Math.max(0.01 * steps, FEWEST_STEPS) || mixed < 3 * decode || slow < 2 * median) return null;
  const text =
    `${of(mixedSteps, steps, "steps")} carried large prefills beside running requests and took ` +
    `${fixed(mixed / decode, 1)} times as long as decode alone (${fixed(mixed, 1)} ms against ${fixed(decode, 1)} ms); ` +
    `p99 of the time per token is ${fixed(slow, 1)} ms, p50 ${fixed(median, 1)} ms.`;
  return { text, lostSeconds: null };
}

export function noPrefixCache(symptoms: Symptoms): Evidence | null {
  const { jobs } = symptoms;
  const requests = symptoms.requests ?? 0;
  if (symptoms.settings["enable_prefix_caching"] !== false || !jobs || requests < 2 * jobs) return null;
  const text =
    `${count(requests)} requests are turns of ${count(jobs)} jobs, and each computes its whole prompt again, because ` +
    "prefix caching is off.";
  return { text, lostSeconds: null };
}

export function evictedTurns(symptoms: Symptoms): Evidence | null {
  const { jobs, localHitRate: hits, peakKvUse: peak } = symptoms;
  const requests = symptoms.requests ?? 0;
  if (symptoms.settings["enable_prefix_caching"] === false || hits === null || peak === null) return null;
  if (!jobs || requests < 2 * jobs || hits >= FEW_HITS || peak < 0.95) return null;
  const text =
    `${count(requests)} requests are turns of ${count(jobs)} jobs, but only ${percent(hits)} of their prompt tokens ` +
    `were still cached; KV was ${percent(peak)} full at its peak, so turns are evicted before the next one comes.`;
  return { text, lostSeconds: null };
}

/** The evidence of a reason that needs no further numbers. */
export function heldBy(name: string, what: string): (symptoms: Symptoms) => Evidence | null {
  return (symptoms) => {
    const held = noticeable(symptoms, name);
    return held && stops(symptoms, held, what);
  };
}
