/** The headline figures: what `tokenyard report` prints under "Figures", each with the steps behind it. */

import { goodput } from "../data";
import { shortId } from "../data/labels";
import { MISSING } from "../data/model/columns";
import type { Bounds } from "../data/model/slo";
import type { Spread, Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { count, duration, figureOf, fixed, mean, outcomesText, percent } from "../format";
import { boundsText } from "../state/bounds";
import { within } from "./filters";

/** One number of a figure. */
export interface Part {
  text: string;
  /** Words around it: `p95`. */
  name?: string;
  /** Filter text for the steps behind it; none where no step stands out. */
  filter?: string;
}

export interface Figure {
  label: string;
  /** What it says, for users who meet the word for the first time. */
  meaning: string;
  parts: Part[];
}

export function figures(store: TraceStore, found: Statistics, bounds: Bounds): Figure[] {
  const scope = within(store, found.range);
  return [
    steps(store, found),
    queue("running", "requests running before each step", found.running, found.overTime.running, scope),
    queue("waiting", "requests waiting before each step", found.waiting, found.overTime.waiting, scope),
    peak(found, scope),
    ...peakDram(store, found),
    preemptions(found, scope),
    ...prefix(found, scope),
    ...throughput(found, scope),
    ...goodRequests(found, bounds),
  ];
}

function steps(store: TraceStore, found: Statistics): Figure {
  const all = `step:${store.steps.number[found.range.first]}..${store.steps.number[found.range.last]}`;
  const parts: Part[] = [{ text: count(found.steps), filter: all }];
  if (found.seconds !== null) parts.push({ name: "over", text: duration(found.seconds) });
  return { label: "steps", meaning: "steps recorded, and from the first snapshot to the last", parts };
}

function queue(label: string, meaning: string, spread: Spread | null, overTime: number | null, scope: string): Figure {
  if (spread === null) return { label, meaning, parts: [{ text: count(null) }] };
  const above = (value: number) => `${label}:${Math.ceil(value)}..${scope}`;
  return {
    label,
    meaning,
    parts: [
      ...(overTime === null ? [] : [{ name: "mean over time", text: mean(overTime) }]),
      { name: "mean over steps", text: mean(spread.mean) },
      { name: "p50", text: count(spread.p50), filter: above(spread.p50) },
      { name: "p95", text: count(spread.p95), filter: above(spread.p95) },
      { name: "max", text: count(spread.max), filter: above(spread.max) },
    ],
  };
}

function peak(found: Statistics, scope: string): Figure {
  const share = found.peakKvUse;
  const part: Part = { text: percent(share) };
  // Rounded down, so that the fullest step itself is among those that the filter finds.
  if (share !== null) part.filter = `kv:${fixed(Math.floor(share * 1000) / 10, 1)}..${scope}`;
  return {
    label: "peak KV use",
    meaning: "largest share of the blocks that was not free before a step",
    parts: [part],
  };
}

/** Of the CPU offload tier, where there is one. */
function peakDram({ steps }: TraceStore, { range }: Statistics): Figure[] {
  let most = Number.NaN;
  for (let row = range.first; row <= range.last; row++) {
    if (steps.cpuFreeBlocks[row] === MISSING || !(steps.cpuTotalBlocks[row] > 0)) continue;
    const share = 1 - steps.cpuFreeBlocks[row] / steps.cpuTotalBlocks[row];
    if (!(share <= most)) most = share;
  }
  if (Number.isNaN(most)) return [];
  const meaning = "largest share of the CPU offload tier's blocks in use before a step";
  return [{ label: "peak DRAM use", meaning, parts: [{ text: percent(most) }] }];
}

function preemptions(found: Statistics, scope: string): Figure {
  const first: Part = { text: count(found.preemptions) };
  if (found.preemptions) first.filter = `preempted:1..${scope}`;
  const parts = [first];
  if (found.recomputedTokens !== null)
    parts.push({ name: "tokens computed again", text: count(found.recomputedTokens) });
  return { label: "preemptions", meaning: "how often a running request lost its blocks", parts };
}

function prefix(found: Statistics, scope: string): Figure[] {
  const hits = found.prefixHits;
  const share = (tokens: number) => percent(hits.promptTokens ? tokens / hits.promptTokens : null);
  return [
    {
      label: "prefix hits",
      meaning: "share of looked-up prompt tokens found in the KV cache, and by a connector",
      parts: [
        { name: "local", text: share(hits.localTokens), ...(hits.localTokens ? { filter: `hit:0.1..${scope}` } : {}) },
        { name: "external", text: share(hits.externalTokens) },
      ],
    },
  ];
}

function throughput(found: Statistics, scope: string): Figure[] {
  const rates: Part[] = [];
  if (found.requestsPerSecond !== null) rates.push({ text: fixed(found.requestsPerSecond, 2), name: "requests/s" });
  if (found.tokensPerSecond !== null) rates.push({ text: fixed(found.tokensPerSecond, 1), name: "output tokens/s" });
  const done: Part = { text: outcomesText(found.outcomes) };
  if (found.finished) done.filter = `finished:1..${scope}`;
  const ends = found.ends.map(({ reason, requests }) => ({ text: count(requests), name: shortId(reason, 24) }));
  return [
    {
      label: "requests",
      meaning: "what became of them; of a selection: of those that ended in it",
      parts: [done, ...(done.filter ? ends : [])],
    },
    ...attempts(found),
    ...speculation(found),
    ...(rates.length ? [{ label: "throughput", meaning: "served requests and sampled tokens", parts: rates }] : []),
  ];
}

function attempts({ attempts: tried }: Statistics): Figure[] {
  if (!tried) return [];
  const parts = [
    { text: count(tried.sent), name: "in all" },
    { text: count(tried.again), name: "given up and sent again" },
    ...(tried.lostTokens ? [{ text: count(tried.lostTokens), name: "tokens of those, in no throughput" }] : []),
  ];
  return [{ label: "attempts", meaning: "a request that its client sends again is not two", parts }];
}

function speculation({ drafts }: Statistics): Figure[] {
  if (!drafts?.tokens) return [];
  const share = { name: "accepted", text: percent(drafts.accepted / drafts.tokens) };
  const parts = [share, { text: count(drafts.tokens), name: "drafts" }];
  return [{ label: "speculation", meaning: "draft tokens that were verified, and the share of them accepted", parts }];
}

function goodRequests(found: Statistics, bounds: Bounds): Figure[] {
  const good = goodput(found, bounds);
  if (!good) return [];
  const rate = good.requestsPerSecond;
  return [
    {
      label: `goodput within ${boundsText(bounds)}`,
      meaning: "requests that were served, with each latency within its bound",
      parts: [
        ...(rate === null ? [] : [{ text: fixed(rate, 2), name: "requests/s" }]),
        { text: percent(good.share), name: OF_ALL },
        ...(good.open ? [{ text: count(good.open), name: MAY_BE }] : []),
      ],
    },
  ];
}

/** `running: mean 12.3, p50 12, p95 24, max 31`: one line for an experiment's notes. */
export function figureText(figure: Figure): string {
  return `${figure.label}: ${figure.parts.map(partText).join(", ")}`;
}

const OF_ALL = "of those that arrived";
const MAY_BE = "more still may be";
const AFTER = new Set(["drafts", "requests/s", "output tokens/s", "tokens computed again", OF_ALL, MAY_BE]);

export function partText(part: Part): string {
  if (!part.name) return part.text;
  return AFTER.has(part.name) ? `${part.text} ${part.name}` : `${part.name} ${part.text}`;
}

/** What is shown of a latency. */
export const LATENCY_FIGURES = ["mean", "p50", "p90", "p95", "p99", "max"] as const;

export interface LatencyRow {
  name: string;
  meaning: string;
  /** In the order of LATENCY_FIGURES. */
  values: string[];
}

/** Latencies of which a request has one. */
export const LATENCIES = [
  { key: "queue", title: "queue", meaning: "arrival to first scheduled", spread: "queueSeconds" },
  { key: "ttft", title: "TTFT", meaning: "arrival to first token", spread: "ttftSeconds" },
  { key: "tpot", title: "TPOT", meaning: "per token after the first", spread: "tpotSeconds" },
  { key: "e2e", title: "E2E", meaning: "arrival to end", spread: "e2eSeconds" },
] as const;
const ITL = { title: "ITL", meaning: "between two tokens", spread: "itlSeconds" } as const;
const ROWS = [...LATENCIES.slice(0, 3), ITL, LATENCIES[3]];

/** Whom the latencies are of, where that is not plain. */
export function notes(found: Statistics): string[] {
  const { outcomes, itlSeconds, tpotSeconds: tpot, warmup } = found;
  const never = outcomes.refused > 0 ? ", those of refused ones without end" : "";
  const floors = `Figures are of all ${count(outcomes.arrived)} requests that arrived; ${count(outcomes.served)} were served. The others count by how long they had waited${never}: ≥ is a lower bound.`;
  const part = `ITL is of ${count(itlSeconds?.count)} requests: of the others the trace does not tell when each token came.`;
  const isUnbounded = LATENCY_FIGURES.some((figure) => tpot?.[figure] === 0 && tpot.atLeast?.includes(figure));
  const unbounded = `No bound on TPOT: ${count(tpot?.unbounded)} of ${count(outcomes.arrived)} requests have no first token, or no limit of tokens.`;
  return [
    ...(warmup === null
      ? []
      : [`What arrived, and was decided, in the warm-up of ${duration(warmup)} does not count.`]),
    ...(ROWS.some(({ spread }) => found[spread]?.atLeast) ? [floors] : []),
    ...(isUnbounded ? [unbounded] : []),
    ...(itlSeconds?.count === undefined ? [] : [part]),
  ];
}

/** Of everybody who arrived; empty if the trace does not record when they came and went. */
export function latencies(found: Statistics): LatencyRow[] {
  const isNever = found.outcomes.refused > 0;
  if (!isNever && ROWS.every(({ spread }) => found[spread] === null)) return [];
  return ROWS.map(({ title, meaning, spread }) => ({
    name: title,
    meaning,
    values: LATENCY_FIGURES.map((figure) => figureOf(found[spread], figure, isNever && title !== "ITL")),
  }));
}
