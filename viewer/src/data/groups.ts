/** Requests by what they have in common, each group in figures: as `tokenyard run --by` (explain/report/classes.py). */

import { CLASSES } from "../generated/vocabulary";
import { MISSING, type RequestIndex } from "./model/columns";
import type { RequestFigures } from "./model/requestFigures";
import type { Bounds } from "./model/slo";
import type { Spread } from "./model/statistics";
import type { TraceStore } from "./model/trace";
import { isBounded, meets } from "./slo";
import { knownSpread } from "./spread";
import { WRONG } from "./status";
import { modelOf, userOf } from "./takers";

export interface GroupKey {
  key: string;
  /** As text that a filter `key:text` means; null where it has none. */
  text?(store: TraceStore, request: RequestIndex, index: number, found: RequestFigures): string | null;
  /** As a number: many different ones are put into ranges. MISSING where it has none. */
  number?(store: TraceStore, request: RequestIndex): number;
}

const named = (names: readonly string[], at: number) => names[at] ?? null;

/** Also keys of the filter, so that a group leads to its requests. */
export const GROUP_KEYS: readonly GroupKey[] = [
  { key: "tenant", text: ({ tenants, requests }, request) => named(tenants, requests.tenant[request]) },
  { key: "priority", number: ({ requests }, request) => requests.priority[request] },
  { key: "lora", text: ({ adapters, requests }, request) => named(adapters, requests.adapter[request]) },
  { key: "model", text: (store, request) => modelOf(store, request) || null },
  { key: "prompt", number: ({ requests }, request) => requests.promptTokens[request] },
  { key: "output", number: ({ requests }, request) => requests.outputTokens[request] },
  { key: "status", text: (_store, _request, index, found) => found.status[index] },
  { key: "reason", text: (_store, _request, index, found) => found.reason[index] || null },
  { key: "user", text: (store, request) => userOf(store, request) || null },
  { key: "job", text: ({ jobs, requests }, request) => named(jobs.ids, requests.job[request]) },
];

/** Seconds. */
export interface Group {
  name: string;
  /** Value of the filter that means its requests; null: none does. */
  term: string | null;
  requests: number;
  /** Aborted, failed or refused. */
  cutShort: number;
  promptTokens: number;
  outputTokens: number;
  /** Of its prompts' tokens, found in a cache. */
  hit: number;
  preemptions: number;
  queue: Spread | null;
  ttft: Spread | null;
  tpot: Spread | null;
  e2e: Spread | null;
  waited: number;
  /** What most of that was for; "" if it did not wait. */
  reason: string;
  /** Share served within every bound. NaN without bounds. */
  good: number;
}

/** `lines` of the figures, group by group: the largest first. */
export function groupsOf(
  store: TraceStore,
  found: RequestFigures,
  lines: ArrayLike<number>,
  by: GroupKey,
  bounds: Bounds = NO_BOUNDS,
): Group[] {
  const members = new Map<string, { term: string | null; lines: number[] }>();
  const label = labeller(store, found, lines, by);
  for (let at = 0; at < lines.length; at++) {
    const { name, term } = label(lines[at]);
    const group = members.get(name);
    if (group) group.lines.push(lines[at]);
    else members.set(name, { term, lines: [lines[at]] });
  }
  return [...members]
    .map(([name, group]) => ({ name, term: group.term, ...figuresOf(found, group.lines, bounds) }))
    .sort((a, b) => b.requests - a.requests || (a.name < b.name ? -1 : 1));
}

const NO_BOUNDS: Bounds = { ttft: null, tpot: null, e2e: null };
const NONE = { name: "(none)", term: null };

function labeller(store: TraceStore, found: RequestFigures, lines: ArrayLike<number>, { text, number }: GroupKey) {
  if (text) {
    return (index: number) => {
      const name = text(store, found.request[index], index, found);
      return name === null ? NONE : { name, term: name };
    };
  }
  const values = new Set<number>();
  const figureOf = (index: number) => number?.(store, found.request[index]) ?? MISSING;
  for (let at = 0; at < lines.length; at++) values.add(figureOf(lines[at]));
  values.delete(MISSING);
  const { bounds, mostValues } = CLASSES;
  return (index: number) => {
    const value = figureOf(index);
    if (value === MISSING) return NONE;
    if (values.size <= mostValues) return { name: String(value), term: String(value) };
    const next = bounds.findIndex((bound) => bound > value);
    const low = bounds[(next < 0 ? bounds.length : next) - 1];
    const [from, to] = [low.toLocaleString("en-US"), next < 0 ? "" : (bounds[next] - 1).toLocaleString("en-US")];
    return next < 0
      ? { name: `${from} and more`, term: `${low}..` }
      : { name: `${from} to ${to}`, term: `${low}..${bounds[next] - 1}` };
  };
}

/** The share that `tokenyard run --by --slo` counts as good. */
function goodShare(found: RequestFigures, lines: readonly number[], bounds: Bounds): number {
  if (!isBounded(bounds)) return Number.NaN;
  const times = (at: number) => ({ ttft: found.ttft[at], tpot: found.tpot[at], e2e: found.e2e[at] });
  return lines.filter((index) => meets(times(index), bounds)).length / lines.length;
}

function figuresOf(found: RequestFigures, lines: readonly number[], bounds: Bounds): Omit<Group, "name" | "term"> {
  const sum = (column: ArrayLike<number>) => lines.reduce((total, index) => total + (column[index] || 0), 0);
  const spread = (name: "queue" | "ttft" | "tpot" | "e2e") => {
    const [times, floors] = [found[name], found.floors[name]].map((column) => lines.map((index) => column[index]));
    return knownSpread(times, floors);
  };
  const looked = lines.filter((index) => !Number.isNaN(found.hit[index]));
  const asked = looked.reduce((total, index) => total + (found.prompt[index] || 0), 0);
  let [reason, most] = ["", 0];
  for (const [name, lost] of found.lost) {
    const seconds = sum(lost);
    if (seconds > most) [reason, most] = [name, seconds];
  }
  return {
    requests: lines.length,
    cutShort: lines.filter((index) => WRONG.has(found.status[index])).length,
    promptTokens: sum(found.prompt),
    outputTokens: sum(found.output),
    hit: looked.reduce((total, index) => total + found.hit[index] * (found.prompt[index] || 0), 0) / asked,
    preemptions: sum(found.preemptions),
    queue: spread("queue"),
    ttft: spread("ttft"),
    tpot: spread("tpot"),
    e2e: spread("e2e"),
    waited: sum(found.waited),
    reason,
    good: goodShare(found, lines, bounds),
  };
}
