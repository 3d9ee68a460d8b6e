/**
 * The classifier of document 000, on columns: which check most likely blocked admission in a step, judged from counts
 * alone. The same rules as src/tokenyard/explain/classifier.py, by the same limits; a test with random traces
 * keeps the two together.
 */

import { LIMITS, STEP_REASONS as STEP_TABLE } from "../generated/vocabulary";
import { known } from "./columns";
import { MISSING } from "./model/columns";
import type { OutcomeTable } from "./model/outcomes";
import { BUCKETS, type Bucket, NO_REASON, STEP_REASONS, type StepReason } from "./model/reasons";
import type { StepColumns } from "./model/steps";
import type { shownIndices } from "./wording";

/** Tokens per block that the format assumes where a trace does not say. */
export const CLASSIFIER_BLOCK_SIZE = 16;

export interface Classified {
  bucket: Bucket;
  /** Null unless requests are known to have been left waiting. */
  reason: StepReason | null;
  unadmitted: number | null;
  effectiveFree: number | null;
}

/** Counts of one step; null where the trace does not record it. */
export interface StepFacts {
  freeBlocks: number | null;
  numRunning: number | null;
  numWaiting: number | null;
  numNew: number | null;
  numResumed: number | null;
  maxRunning: number | null;
  tokenSum: number | null;
  tokenBudget: number | null;
  runningConsumed: number | null;
  minNeed: number | null;
}

export function factsAt(steps: StepColumns, row: number): StepFacts {
  return {
    freeBlocks: known(steps.freeBlocks, row),
    numRunning: known(steps.numRunning, row),
    numWaiting: known(steps.numWaiting, row),
    numNew: known(steps.numNew, row),
    numResumed: known(steps.numResumed, row),
    maxRunning: known(steps.maxRunning, row),
    tokenSum: known(steps.tokenSum, row),
    tokenBudget: known(steps.tokenBudget, row),
    runningConsumed: known(steps.runningConsumed, row),
    minNeed: known(steps.minNeed, row),
  };
}

/** Judge one step. A check whose numbers are missing does not match. */
export function classify(facts: StepFacts): Classified {
  const effectiveFree =
    facts.freeBlocks !== null && facts.runningConsumed !== null ? facts.freeBlocks - facts.runningConsumed : null;
  const verdict = (bucket: Bucket, unadmitted: number | null, reason: StepReason | null = null): Classified => ({
    bucket,
    reason,
    unadmitted,
    effectiveFree,
  });
  if (facts.numWaiting === null) return verdict("unknown", null);
  if (facts.numWaiting <= 0) return verdict(withoutQueue(facts.numRunning), 0);
  if (facts.numNew === null && facts.numResumed === null) return verdict("unknown", null);
  const unadmitted = facts.numWaiting - (facts.numNew ?? 0) - (facts.numResumed ?? 0);
  if (unadmitted <= 0) return verdict("admitted-all", 0);
  const reason = hardLimit(facts, effectiveFree) ?? softLimit(facts, effectiveFree);
  return verdict(STEP_TABLE[reason].bucket, unadmitted, reason);
}

function withoutQueue(numRunning: number | null): Bucket {
  if (numRunning === null) return "unknown";
  return numRunning > 0 ? "under-capacity" : "idle";
}

/** Checks 1 to 5: a limit that was provably reached. */
function hardLimit(facts: StepFacts, effective: number | null): StepReason | null {
  const { freeBlocks: free, minNeed: need, tokenSum, tokenBudget, numRunning, maxRunning } = facts;
  if (tokenSum !== null && tokenBudget !== null && tokenSum >= LIMITS.budgetShare * tokenBudget) return "tok-budget";
  if (effective !== null && need !== null && effective < need) return "kv-after-run";
  if (free !== null && need !== null && free < need) return "kv-insuf";
  if (free !== null && free < LIMITS.freeLow) return "kv-low";
  if (numRunning !== null && maxRunning !== null && numRunning >= maxRunning) return "max-seqs";
  return null;
}

/** Checks 6 to 10: no limit was provably reached. */
function softLimit(facts: StepFacts, effective: number | null): StepReason {
  const free = facts.freeBlocks;
  if (effective !== null && effective < LIMITS.freeTight) return "kv-tight-after-run";
  if (facts.numNew) return "alloc-exhausted";
  if (free !== null && free > LIMITS.freePlenty) return "alloc-rejected";
  if (free !== null) return "kv-marginal";
  return "unknown";
}

/** Fill the derived columns of rows from .. to - 1. */
export function classifyRows(steps: StepColumns, from: number, to: number): void {
  for (let row = from; row < to; row++) {
    const verdict = classify(factsAt(steps, row));
    steps.bucket[row] = BUCKETS.indexOf(verdict.bucket);
    steps.stepReason[row] = verdict.reason === null ? NO_REASON : STEP_REASONS.indexOf(verdict.reason);
    steps.unadmitted[row] = verdict.unadmitted ?? MISSING;
    steps.effectiveFree[row] = verdict.effectiveFree ?? MISSING;
  }
}

/** Fill `steps.shown` of rows from .. to - 1. */
export function showRows(
  steps: StepColumns,
  outcomes: OutcomeTable,
  indices: ReturnType<typeof shownIndices>,
  from: number,
  to: number,
): void {
  for (let row = from; row < to; row++) {
    const outcome = steps.outcome[row];
    const reason = outcome >= 0 && outcomes.held[outcome] > 0 ? outcomes.mainReason[outcome] : -1;
    if (reason >= 0) steps.shown[row] = indices.ofRecorded[reason];
    else if (steps.stepReason[row] !== NO_REASON) steps.shown[row] = indices.ofReason[steps.stepReason[row]];
    else steps.shown[row] = indices.ofBucket[steps.bucket[row]];
  }
}
