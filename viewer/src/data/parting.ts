/** Where two traces part: the first step in which anything differs, and the first that decides differently. */

import { count } from "../format";
import { known } from "./columns";
import { shortId } from "./labels";
import { type Lists, MISSING, type RequestIndex, type Row } from "./model/columns";
import type { Comparison, DecidedSide, DecisionParting } from "./model/comparison";
import type { TraceStore } from "./model/trace";
import { inSlices } from "./slices";
import { recorded } from "./verdict";

const IDS_SHOWN = 4;

export async function firstParting(a: TraceStore, b: TraceStore, signal?: AbortSignal): Promise<Comparison["parting"]> {
  let found: Comparison["parting"] = null;
  const rowsInA = Math.min(a.rows, b.rows);
  await inSlices(
    0,
    rowsInA - 1,
    (row) => {
      if (found) return;
      const difference = differenceAt(a, b, row);
      if (difference) found = { rowA: row, rowB: row, ...difference };
    },
    signal,
  );
  if (!found && a.rows !== b.rows && rowsInA > 0) {
    const longer = a.rows > b.rows ? "A" : "B";
    found = {
      rowA: Math.min(rowsInA, a.rows - 1),
      rowB: Math.min(rowsInA, b.rows - 1),
      what: "one ends",
      detail: `${longer} goes on after the last step of ${longer === "A" ? "B" : "A"}`,
    };
  }
  return found;
}

/** What a step saw, and what it decided. */
export type Kind = "seen" | "decided";

const LISTS = [
  ["running", "running requests", "seen"],
  ["waiting", "waiting requests", "seen"],
  ["scheduledNew", "requests admitted", "decided"],
  ["scheduledResumed", "requests resumed", "decided"],
  ["preempted", "requests preempted", "decided"],
  ["scheduledRunning", "running requests scheduled", "decided"],
  ["scheduled", "tokens per request", "decided"],
] as const;

const COUNTS = [
  ["numRunning", "running requests", "seen"],
  ["numWaiting", "length of the queue", "seen"],
  ["numNew", "requests admitted", "decided"],
  ["numResumed", "requests resumed", "decided"],
  ["numPreempted", "requests preempted", "decided"],
  ["tokenSum", "tokens scheduled", "decided"],
  ["freeBlocks", "free blocks", "seen"],
] as const;

const BOTH: readonly Kind[] = ["seen", "decided"];

/** What differs between the same row of two traces, the most telling first: as src/tokenyard/explain/compare does. */
export function differenceAt(
  a: TraceStore,
  b: TraceStore,
  row: Row,
  kinds = BOTH,
  rowB = row,
): { what: string; detail: string } | null {
  if (a.steps.number[row] !== b.steps.number[rowB]) {
    return { what: "step number", detail: inBoth(a.steps.number[row], b.steps.number[rowB]) };
  }
  for (const [name, what, kind] of LISTS) {
    const detail = kinds.includes(kind) ? listDifference(a, b, a.lists[name], b.lists[name], row, rowB) : null;
    if (detail) return { what, detail };
  }
  for (const [name, what, kind] of COUNTS) {
    const [inA, inB] = [a.steps[name][row], b.steps[name][rowB]];
    if (!kinds.includes(kind) || inA === MISSING || inB === MISSING) continue;
    if (inA !== inB) return { what, detail: inBoth(inA, inB) };
  }
  return null;
}

/** The first step from `from` on that decides differently, with what each of the two had before it; null if none does. */
export async function firstDecision(
  a: TraceStore,
  b: TraceStore,
  from: Row,
  signal?: AbortSignal,
): Promise<DecisionParting | null> {
  let found: DecisionParting | null = null;
  await inSlices(
    from,
    Math.min(a.rows, b.rows) - 1,
    (row) => {
      if (found) return;
      const difference = differenceAt(a, b, row, ["decided"]);
      if (difference) found = { row, ...difference, a: decidedSide(a, b, row), b: decidedSide(b, a, row) };
    },
    signal,
  );
  return found;
}

/** A row of `store`, against the same row of `other`. */
function decidedSide(store: TraceStore, other: TraceStore, row: Row): DecidedSide {
  const { lists, steps } = store;
  const own = (name: "scheduledNew" | "scheduledResumed" | "preempted"): RequestIndex[] => {
    const theirs = listed(other, other.lists[name], row);
    const start = lists[name].starts[row];
    const ids = [...lists[name].ids.subarray(start, start + Math.max(lists[name].counts[row], 0))];
    return ids.filter((request) => !theirs.has(store.requests.ids[request]));
  };
  return {
    admitted: own("scheduledNew"),
    resumed: own("scheduledResumed"),
    preempted: own("preempted"),
    running: known(steps.numRunning, row),
    maxRunning: known(steps.maxRunning, row),
    waiting: known(steps.numWaiting, row),
    freeBlocks: known(steps.freeBlocks, row),
    totalBlocks: known(steps.totalBlocks, row),
    pinnedJobs: known(steps.numPinned, row),
    pinnedBlocks: known(steps.pinnedBlocks, row),
    tokens: known(steps.tokenSum, row),
    tokenBudget: known(steps.tokenBudget, row),
    firstInQueue: lists.waiting.counts[row] > 0 ? lists.waiting.ids[lists.waiting.starts[row]] : -1,
    refusal: recorded(store, row),
  };
}

function inBoth(a: number, b: number): string {
  return `${count(a)} in A, ${count(b)} in B`;
}

/** Ids of a row's list, each with its tokens where they are listed. */
function listed(store: TraceStore, lists: Lists & { tokens?: ArrayLike<number> }, row: Row): Map<string, number> {
  const found = new Map<string, number>();
  for (let at = lists.starts[row]; at < lists.starts[row] + lists.counts[row]; at++) {
    found.set(store.requests.ids[lists.ids[at]], lists.tokens?.[at] ?? 0);
  }
  return found;
}

function listDifference(a: TraceStore, b: TraceStore, inA: Lists, inB: Lists, rowA: Row, rowB: Row): string | null {
  if (inA.counts[rowA] === MISSING || inB.counts[rowB] === MISSING) return null;
  const [idsA, idsB] = [listed(a, inA, rowA), listed(b, inB, rowB)];
  const parts = [
    ...only(
      "A",
      [...idsA.keys()].filter((id) => !idsB.has(id)),
    ),
    ...only(
      "B",
      [...idsB.keys()].filter((id) => !idsA.has(id)),
    ),
  ];
  if (parts.length > 0) return parts.join("; ");
  for (const [id, tokens] of idsA) {
    if (tokens !== idsB.get(id)) return `${shortId(id)}: ${inBoth(tokens, idsB.get(id) ?? 0)}`;
  }
  // Tokens stand in no order of their own.
  const ordered = !("tokens" in inA) && [...idsA.keys()].join("\n") !== [...idsB.keys()].join("\n");
  return ordered ? "the same, in another order" : null;
}

function only(side: "A" | "B", ids: string[]): string[] {
  const more = ids.length > IDS_SHOWN ? ` and ${count(ids.length - IDS_SHOWN)} more` : "";
  const shown = ids.slice(0, IDS_SHOWN).map((id) => shortId(id));
  return ids.length > 0 ? [`only in ${side}: ${shown.join(", ")}${more}`] : [];
}
