/**
 * The filter language: `job:swe_0011 reason:kv step:100..200 -req:t9 "free text"`.
 *
 * Terms of one key widen (either job), terms of different keys narrow (this job *and* this reason), a leading `-` takes
 * out. A word without a key looks for requests and jobs. Matching ignores case and looks for parts, except for numbers.
 *
 * Figures of the other views lead here: `bucket:` is the reconstructed bucket whatever was recorded, `disagree:GUESS/TRUTH`
 * a bucket against the recorded reason, and the numbers of measures.ts are asked like steps: `budget:40..45`.
 *
 * Figures of a request, `ttft:30s..` or `tpot:..80ms`, mean requests, as `req:` does.
 */

import { MEASURES, type Measure } from "./measures";
import { secondsBetween, TIMES, type Time } from "./times";

/** What a request is, as text, and as a number. */
export const TRAITS = ["status", "lora", "model", "tenant", "user", "rank"] as const;
export type Trait = (typeof TRAITS)[number];
export const COUNTS = ["priority", "prompt", "output"] as const;
export type Count = (typeof COUNTS)[number];

export type FilterKey =
  | "job"
  | "req"
  | "reason"
  | "bucket"
  | "disagree"
  | "step"
  | "text"
  | Trait
  | Count
  | Measure
  | Time;

export interface Term {
  key: FilterKey;
  /** In lower case; empty where numbers are asked. */
  value: string;
  negated: boolean;
  /** For `step`, the measures and the times (seconds): numbers, both included; ±Infinity where an end is left open. */
  from: number;
  to: number;
  /** Of a time without a unit: the term as it is understood. */
  read?: string;
}

export interface Filter {
  terms: Term[];
  /** What could not be understood, as sentences for the user. */
  problems: string[];
}

const SHOWN_KEYS = [
  "job",
  "req",
  "reason",
  ...TRAITS,
  ...COUNTS,
  "step",
  ...TIMES,
  ...MEASURES,
  "bucket",
  "disagree",
] as const;
const KEYS = new Map<string, FilterKey>([
  ...SHOWN_KEYS.map((name): [string, FilterKey] => [name, name]),
  ["request", "req"],
  ["adapter", "lora"],
  ["steps", "step"],
]);
const NUMBERS: ReadonlySet<string> = new Set(["step", ...COUNTS, ...MEASURES, ...TIMES]);
const SECONDS: ReadonlySet<string> = new Set(TIMES);
/** Keys that ask about steps alone: a request has none of them. */
const OF_STEPS: ReadonlySet<string> = new Set(["bucket", "disagree", "step", ...MEASURES]);
const TOKEN = /(-?)(?:([a-z][a-z0-9]*):)?(?:"([^"]*)"?|(\S*))/giy;
const INTERVAL = /^(-?\d[\d_,]*(?:\.\d+)?)?(\.\.)?(-?\d[\d_,]*(?:\.\d+)?)?$/;

/** Never throws: what is not understood is named in `problems` and left out. */
export function parseFilter(text: string): Filter {
  const filter: Filter = { terms: [], problems: [] };
  let at = 0;
  while (at < text.length) {
    if (/\s/.test(text[at])) {
      at += 1;
      continue;
    }
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) break;
    at = TOKEN.lastIndex;
    addTerm(filter, found);
  }
  return filter;
}

function addTerm(filter: Filter, [whole, minus, name, quoted, plain]: RegExpExecArray): void {
  const value = quoted ?? plain ?? "";
  const key = name === undefined ? "text" : KEYS.get(name.toLowerCase());
  if (key === undefined) {
    const text = whole.slice(minus.length).replaceAll('"', "");
    filter.problems.push(`${name} is no key. Keys: ${SHOWN_KEYS.join(", ")}. For an id with a colon write "${text}"`);
    return;
  }
  const term: Term = { key, value: value.toLowerCase(), negated: minus === "-", from: 0, to: 0 };
  if (NUMBERS.has(term.key)) {
    const range = SECONDS.has(term.key) ? secondsBetween(value) : interval(value, term.key === "priority");
    if (!range) {
      filter.problems.push(notUnderstood(term.key, value));
      return;
    }
    [term.from, term.to] = range;
    if (SECONDS.has(term.key) && !/[a-z:]/i.test(value)) term.read = `${term.key}:${value} is in seconds`;
    term.value = "";
  } else if (term.value === "") {
    filter.problems.push(`${name ?? "the empty word"}: says nothing to look for`);
    return;
  }
  filter.terms.push(term);
}

/** Of times without a unit: which one they have. */
export function unitsOf({ terms }: Filter): string[] {
  return terms.flatMap(({ read }) => read ?? []);
}

/** The keys of a filter that say nothing about requests, as typed: `step:`. */
export function keysOfSteps({ terms }: Filter): string[] {
  return [...new Set(terms.filter(({ key }) => OF_STEPS.has(key)).map(({ key }) => `${key}:`))];
}

function notUnderstood(key: string, value: string): string {
  if (SECONDS.has(key)) {
    return `${key}:${value} is not understood. Write ${key}:30s.., ${key}:..80ms or ${key}:1s..2s; a number alone is in seconds`;
  }
  const [low, high] = key === "step" ? [100, 200] : [40, 45];
  const only = key === "step" ? 120 : low;
  return `${key}:${value} is not understood. Write ${key}:${only}, ${key}:${low}..${high}, ${key}:${low}.. or ${key}:..${high}`;
}

/** `120`, `100..200`, `100..`, `..200`; a turned-round range is turned back. */
export function interval(text: string, signed = false): [number, number] | null {
  const found = INTERVAL.exec(text);
  if (!found || (found[1] === undefined && found[3] === undefined)) return null;
  if (!signed && (found[1]?.[0] === "-" || found[3]?.[0] === "-")) return null;
  const number = (digits: string | undefined, open: number) =>
    digits === undefined ? open : Number(digits.replace(/[_,]/g, ""));
  if (found[2] === undefined) {
    const only = number(found[1], 0);
    return [only, only];
  }
  const [from, to] = [number(found[1], Number.NEGATIVE_INFINITY), number(found[3], Number.POSITIVE_INFINITY)];
  return from <= to ? [from, to] : [to, from];
}

/** The filter with a term added or, if it is there already, taken out: what a click on a figure does. */
export function toggleTerm(text: string, key: Exclude<FilterKey, "text">, value: string): string {
  const term = `${key}:${/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value}`;
  const kept = text.trim();
  const words = kept === "" ? [] : kept.split(/\s+(?=(?:[^"]*"[^"]*")*[^"]*$)/);
  const without = words.filter((word) => word !== term);
  return (without.length < words.length ? without : [...words, term]).join(" ");
}
