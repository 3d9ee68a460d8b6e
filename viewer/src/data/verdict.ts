/** What stopped admission at a row: the classifier's answer and the recorded one, in words and numbers. */

import { LIMITS } from "../generated/vocabulary";
import { known } from "./columns";
import type { Row } from "./model/columns";
import type { RecordedReason, Verdict } from "./model/moment";
import type { Outcome, OutcomeTable } from "./model/outcomes";
import { BUCKETS, NO_REASON, STEP_REASONS } from "./model/reasons";
import type { TraceStore } from "./model/trace";
import type { OutcomeRest } from "./outcomeBook";
import { agrees, familyOf, meaningOf } from "./wording";

export function verdict(store: TraceStore, row: Row): Verdict {
  const { steps } = store;
  const reason = steps.stepReason[row] === NO_REASON ? null : STEP_REASONS[steps.stepReason[row]];
  const unadmitted = known(steps.unadmitted, row);
  const found: Verdict = {
    bucket: BUCKETS[steps.bucket[row]],
    reason,
    unadmitted,
    effectiveFree: known(steps.effectiveFree, row),
    minNeed: known(steps.minNeed, row),
    badge: null,
  };
  if (reason !== null) found.badge = `${unadmitted} blocked: ${reason}(${numbersOf(store, row, found)})`;
  return found;
}

/** The numbers that decided, as document 000 writes them: `free=533, allocator refused—hash/frag`. */
function numbersOf(store: TraceStore, row: Row, found: Verdict): string {
  const { steps } = store;
  const free = known(steps.freeBlocks, row) ?? "?";
  switch (found.reason) {
    case "tok-budget":
      return `tok=${known(steps.tokenSum, row)}/${known(steps.tokenBudget, row)}`;
    case "kv-after-run":
      return `free=${free}, after run=${found.effectiveFree}, need=${found.minNeed}`;
    case "kv-insuf":
      return `free=${free}, need=${found.minNeed}`;
    case "kv-low":
      return `free=${free}, fewer than ${LIMITS.freeLow}`;
    case "max-seqs":
      return `run=${known(steps.numRunning, row)}/${known(steps.maxRunning, row)}`;
    case "kv-tight-after-run":
      return `free=${free}, after run=${found.effectiveFree}`;
    case "alloc-exhausted":
      return `free=${free}, new=${known(steps.numNew, row)}, then refused`;
    case "alloc-rejected":
      return `free=${free}, allocator refused—hash/frag`;
    case "kv-marginal":
      return `free=${free}, gray zone`;
    default:
      return "fields missing";
  }
}

/** Outcomes looked at lately: neighbouring requests wait in the same rows. */
const lately = new WeakMap<OutcomeTable, Map<number, Outcome>>();
const KEPT = 4_096;

/** The recorded outcome of a row with its lists; null if there is none. */
export function outcome(store: TraceStore, row: Row): Outcome | null {
  const at = store.steps.outcome[row];
  if (at < 0) return null;
  let kept = lately.get(store.outcomes);
  if (!kept) {
    kept = new Map();
    lately.set(store.outcomes, kept);
  }
  let found = kept.get(at);
  if (!found) {
    if (kept.size >= KEPT) kept.clear();
    found = unpacked(store, row, at);
    kept.set(at, found);
  }
  return found;
}

function unpacked(store: TraceStore, row: Row, at: number): Outcome {
  const table = store.outcomes;
  const name = (index: number, names: readonly string[]) => (index < 0 ? null : names[index]);
  const rest = table.rest[at] ? (JSON.parse(table.rest[at]) as OutcomeRest) : null;
  const kv = {
    limit: name(table.limit[at], table.limits),
    needed: known(table.needed, at),
    free: known(table.free, at),
    cachedHits: known(table.cachedHits, at),
    reserved: known(table.reserved, at),
    watermark: known(table.watermark, at),
    pinned: known(table.pinned, at),
  };
  return {
    row,
    kind: name(table.kind[at], table.kinds),
    reason: name(table.reason[at], store.reasonNames),
    request: table.request[at] < 0 ? null : table.request[at],
    numRequests: known(table.numRequests, at),
    kv: Object.values(kv).some((value) => value !== null) ? kv : null,
    smallestNeed: known(table.smallestNeed, at),
    wantedTokens: known(table.wantedTokens, at),
    budgetLeft: known(table.budgetLeft, at),
    skippedCounts: rest?.skippedCounts ? Object.fromEntries(rest.skippedCounts) : null,
    skipped: rest?.skipped ?? [],
    skippedOmitted: rest?.skippedOmitted ?? 0,
    notScheduledCounts: rest?.notScheduledCounts ? Object.fromEntries(rest.notScheduledCounts) : null,
    notScheduled: rest?.notScheduled ?? [],
    notScheduledOmitted: rest?.notScheduledOmitted ?? 0,
    preemptions: rest?.preemptions ?? [],
  };
}

/** The recorded reason of a row, put into words. */
export function recorded(store: TraceStore, row: Row): RecordedReason | null {
  const found = outcome(store, row);
  if (found === null) return null;
  const at = store.steps.outcome[row];
  const main = store.outcomes.mainReason[at];
  const reason = main < 0 ? null : store.reasonNames[main];
  const bucket = BUCKETS[store.steps.bucket[row]];
  const comparable = reason !== null && store.steps.stepReason[row] !== NO_REASON && bucket !== "unknown";
  return {
    outcome: found,
    reason,
    held: known(store.outcomes.held, at) ?? 0,
    family: reason === null ? "unknown" : familyOf(reason),
    meaning: reason === null ? "Only running requests were held back." : meaningOf(reason),
    numbers: numbersOfOutcome(found),
    agrees: comparable ? agrees(bucket, reason) : null,
  };
}

function numbersOfOutcome(found: Outcome): string {
  const parts: string[] = [];
  const { kv } = found;
  if (kv) {
    if (kv.needed !== null) parts.push(`the head needs ${kv.needed} blocks`);
    if (kv.free !== null) parts.push(`free ${kv.free}`);
    if (kv.cachedHits) parts.push(`of its need ${kv.cachedHits} are cached hits`);
    if (kv.reserved) parts.push(`${kv.reserved} reserved`);
    if (kv.watermark) parts.push(`${kv.watermark} kept by the watermark`);
    if (kv.pinned) parts.push(`${kv.pinned} pinned`);
  }
  if (found.smallestNeed !== null) parts.push(`the smallest waiting needs ${found.smallestNeed}`);
  if (found.wantedTokens !== null) parts.push(`wanted ${found.wantedTokens} tokens`);
  if (found.budgetLeft !== null) parts.push(`${found.budgetLeft} tokens of the budget left`);
  return parts.join(", ");
}
