/** Which of two runs served the same requests better: in the middle, in the tail, and by the user's bounds. */

import { isBounded, meets } from "../data";
import type { Bounds } from "../data/model/slo";
import type { Spread } from "../data/model/statistics";
import { knownSpread } from "../data/spread";
import { atLeast, count, fixed, percent } from "../format";
import { type Entry, leastOf } from "./faster";
import { timesText } from "./pair";

/** Less than this share more or less is no change. */
const AS_FAST = 0.005;

/** One figure of the requests that came to both. */
export interface Change {
  /** `TTFT p99`. */
  name: string;
  tail: boolean;
  a: number;
  b: number;
  /** (B - A) / A. */
  share: number;
  /** -1: B takes less time; 0: as much, or it is open. */
  sign: -1 | 0 | 1;
  /** Whether that of A, and that of B, is a lower bound. */
  atLeast: readonly boolean[];
  /** Those bounds leave open which takes less. */
  open: boolean;
}

export interface Verdict {
  winner: string;
  changes: Change[];
  /** Shares of the requests within every bound; null without one. */
  goodput: { a: number; b: number } | null;
  both: number;
  /** Of them, those that one of the two did not finish. */
  cut: number;
}

const FIGURES = [
  { key: "ttft", title: "TTFT" },
  { key: "tpot", title: "TPOT" },
  { key: "e2e", title: "E2E" },
] as const;

/** Null if no request came to both. */
export function verdictOf(entries: readonly Entry[], bounds: Bounds): Verdict | null {
  const both = entries.filter((entry) => entry.alike && entry.a && entry.b);
  const changes: Change[] = [];
  for (const { key, title } of FIGURES) {
    const [inA, inB] = (["a", "b"] as const).map((side) => {
      const of = (name: string) => both.map((entry) => entry[side]?.[name] ?? Number.NaN);
      return knownSpread(of(key), of(leastOf(key)));
    });
    if (inA && inB) changes.push(...(["p50", "p99"] as const).map((which) => changeOf(title, which, inA, inB)));
  }
  if (changes.length === 0) return null;
  const goodput = isBounded(bounds)
    ? { a: shareWithin(entries, "a", bounds), b: shareWithin(entries, "b", bounds) }
    : null;
  return {
    winner: winnerOf(changes, goodput),
    changes,
    goodput,
    both: both.length,
    cut: both.filter(({ whole }) => !whole).length,
  };
}

function changeOf(title: string, which: "p50" | "p99", inA: Spread, inB: Spread): Change {
  const [a, b] = [inA[which], inB[which]];
  const atLeast = [inA, inB].map((spread) => spread.atLeast?.includes(which) ?? false);
  // A lower bound decides where it is above what the other is.
  const open = (atLeast[0] && (atLeast[1] || a <= b)) || (atLeast[1] && b <= a);
  const share = a > 0 ? (b - a) / a : 0;
  const sign = open || Math.abs(share) < AS_FAST ? 0 : share < 0 ? -1 : 1;
  return { name: `${title} ${which}`, tail: which === "p99", a, b, share, sign, atLeast, open };
}

/** The user's bounds decide where there are any; else no run wins that is slower in the middle or in the tail. */
function winnerOf(changes: readonly Change[], goodput: Verdict["goodput"]): string {
  if (goodput) {
    if (Math.abs(goodput.a - goodput.b) < AS_FAST) return "A and B meet the bounds for equally many requests";
    const [better, more, less] = goodput.b > goodput.a ? ["B", goodput.b, goodput.a] : ["A", goodput.a, goodput.b];
    return `${better} meets the bounds for more requests: ${percent(more)} against ${percent(less)}`;
  }
  // TPOT is told, but who waits for a whole answer minds the first token and the end.
  const judged = changes.filter(({ name }) => !name.startsWith("TPOT"));
  if (judged.some(({ open }) => open)) return "Which is faster is open: not all have ended";
  const sides = [false, true].map((tail) => {
    const signs = judged.filter((change) => change.tail === tail).map(({ sign }) => sign);
    return { less: signs.includes(-1), more: signs.includes(1) };
  });
  const [middle, tail] = sides;
  const less = middle.less || tail.less;
  const more = middle.more || tail.more;
  if (!less && !more) return "A and B take equally long";
  if (!more) return "B is faster, in the middle and in the tail";
  if (!less) return "A is faster, in the middle and in the tail";
  if (middle.less && !middle.more && tail.more) return "B is faster in the middle, but its tail is slower";
  if (middle.more && !middle.less && tail.less) return "A is faster in the middle, but its tail is slower";
  return "Neither is faster throughout";
}

/** `TTFT p99 +107.0 % (66.1 s to 136.9 s)`. */
export function changeText({ name, a, b, share, sign, atLeast: [inA, inB], open }: Change): string {
  const texts = timesText(a, b, "latency");
  const by = open ? "open" : sign === 0 ? "the same" : `${share > 0 ? "+" : "−"}${fixed(100 * Math.abs(share), 1)} %`;
  return `${name} ${by} (${atLeast(texts.a, a, inA)} to ${atLeast(texts.b, b, inB)})`;
}

function shareWithin(entries: readonly Entry[], side: "a" | "b", bounds: Bounds): number {
  const judged = entries.filter(({ a, b, alike }) => a && b && alike);
  const good = judged.filter((entry) => {
    const { ttft = Number.NaN, tpot = Number.NaN, e2e = Number.NaN } = entry[side] ?? {};
    return meets({ ttft, tpot, e2e }, bounds);
  });
  return judged.length > 0 ? good.length / judged.length : Number.NaN;
}

/** Whether requests of the same name are the same requests; null if nothing speaks against it. */
export function workloadsDiffer(work: { same: number; other: number; example: string | null }): string | null {
  if (work.other === 0) return null;
  const { same, other, example } = work;
  const all = count(same + other);
  const found = example ? ` (${example})` : "";
  if (same === 0) {
    return `These are different workloads: none of the ${all} requests that have the same name in both has the same prompt length and the same bound${found}. So neither is called faster.`;
  }
  return `Of the ${all} requests that have the same name in both, ${count(other)} are other requests: another prompt length or another bound${found}. Only the ${count(same)} that are the same are compared.`;
}
