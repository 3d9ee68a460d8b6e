/** The badges of the timeline's third column: counts, tokens, what blocked, memory. */

import { CLASSIFIER_BLOCK_SIZE } from "./classify";
import { known } from "./columns";
import { bytesPerBlock } from "./header";
import { count, jobAndTurn, memory, shortId } from "./labels";
import { forEach } from "./lists";
import { MISSING, type Row } from "./model/columns";
import type { Badge } from "./model/moment";
import type { KVNumbers } from "./model/outcomes";
import { RECORD_FLAGS } from "./model/requests";
import type { TraceStore } from "./model/trace";
import { BADGE_MEANINGS } from "./shorthand";
import { isOfTokens, tokenTakers } from "./takers";
import { recorded, verdict } from "./verdict";

const HOT = 0.9;
const JOBS_LISTED = 6;
/** Of the step's tokens. */
const WORTH_NAMING = 0.25;

/** The badges of a row, in the order in which they are drawn. */
export function badges(store: TraceStore, row: Row): Badge[] {
  const found = [counts(store, row)];
  const { steps } = store;
  const blocked = verdict(store, row);
  const truth = recorded(store, row);
  if (steps.numPinned[row] > 0) found.push(pinnedBadge(store, row));
  const tokens = tokenBadge(store, row);
  if (tokens) found.push(tokens);
  if (truth?.reason && truth.held > 0) {
    found.push({
      kind: "recorded",
      label: `${truth.held} held: ${truth.reason}${pairOf(truth.outcome.kv) || takerOf(store, row, truth.reason)}`,
      title: titleOf(truth.meaning, truth.numbers),
    });
  }
  if (blocked.badge && !store.hasReasons) {
    found.push({ kind: "blocked", label: blocked.badge, title: "What the classifier makes of the counts." });
  }
  const cached = cachedBlocks(store, row);
  if (cached !== null) {
    found.push({
      kind: "cached",
      label: `cached:${cached}b`,
      title: BADGE_MEANINGS.cached,
    });
  }
  if (steps.recomputedTokens[row] > 0) {
    const label = `recomputed:${steps.recomputedTokens[row]}t`;
    found.push({ kind: "recomputed", label, title: BADGE_MEANINGS.recomputed });
  }
  return [...found, ...memoryBadges(store, row)];
}

/** What was requested, and what there was: the pair that the decision compared. */
function pairOf(kv: KVNumbers | null): string {
  return kv?.needed == null || kv.free === null ? "" : ` (needs ${kv.needed}, free ${kv.free})`;
}

/** The requests that took most of the tokens, if it was much: ` (j0087, t4 took 2,031, 99 %)`. */
function takerOf(store: TraceStore, row: Row, reason: string): string {
  const [most] = isOfTokens(reason) ? tokenTakers(store, row).by : [];
  if (!most || most.share < WORTH_NAMING) return "";
  const job = store.requests.job[most.request];
  const { job: name, turn } = jobAndTurn(most.name, job < 0 ? null : store.jobs.ids[job]);
  const who = turn === null ? name : `${name}, ${turn}`;
  return ` (${who} took ${count(most.amount)}, ${Math.round(100 * most.share)} %)`;
}

function titleOf(meaning: string, numbers: string): string {
  return numbers === "" ? meaning : `${meaning} (${numbers})`;
}

function counts({ steps, lists }: TraceStore, row: Row): Badge {
  const value = (number: number) => (number === MISSING ? "?" : `${number}`);
  const listed = lists.scheduledRunning.counts[row];
  const running = steps.numRunning[row];
  const omitted = steps.runningOmitted[row] > 0;
  const skipped =
    listed === MISSING || running === MISSING || omitted
      ? null
      : running - listed - Math.max(steps.numPreempted[row], 0);
  const parts = [
    `run:${value(running)}`,
    `new:${value(steps.numNew[row])}`,
    `res:${value(steps.numResumed[row])}`,
    `pre:${value(steps.numPreempted[row])}`,
    `skip-run:${skipped === null ? "?" : Math.max(skipped, 0)}`,
    `wait:${value(steps.unadmitted[row] === MISSING ? steps.numWaiting[row] : steps.unadmitted[row])}`,
  ];
  return { kind: "count", label: parts.join(" "), title: "Requests of each kind; wait: those that were not admitted." };
}

function pinnedBadge({ steps, lists, jobs }: TraceStore, row: Row): Badge {
  const names: string[] = [];
  forEach(lists.pinnedJobs, row, (job) => names.push(shortId(jobs.ids[job], 16)));
  const more = names.length > JOBS_LISTED ? ` and ${names.length - JOBS_LISTED} more` : "";
  const listed = names.slice(0, JOBS_LISTED).join(" ") + more;
  return {
    kind: "pinned",
    label: `pin:${steps.numPinned[row]} ${listed}`.trim(),
    title: BADGE_MEANINGS.pinned,
  };
}

function tokenBadge({ steps }: TraceStore, row: Row): Badge | null {
  const used = known(steps.tokenSum, row);
  const budget = known(steps.tokenBudget, row);
  if (used === null) return null;
  const hot = budget !== null && budget > 0 && used >= HOT * budget;
  const label = budget === null ? `tok:${used}` : `tok:${used}/${budget}${hot ? " 🔥" : ""}`;
  return { kind: "tokens", label, title: BADGE_MEANINGS.tokens, hot };
}

function cachedBlocks(store: TraceStore, row: Row): number | null {
  const { records } = store;
  if (!records || records.num[row] === 0) return null;
  const size = store.start?.blockSize || CLASSIFIER_BLOCK_SIZE;
  let blocks = 0;
  const end = records.first[row] + records.num[row];
  for (let record = records.first[row]; record < end; record++) {
    if (records.flags[record] & (RECORD_FLAGS.running | RECORD_FLAGS.waiting)) {
      blocks += Math.floor(Math.max(records.cachedTokens[record], 0) / size);
    }
  }
  return blocks;
}

function memoryBadges(store: TraceStore, row: Row): Badge[] {
  const { steps } = store;
  const { bytes } = bytesPerBlock(store.start);
  const found: Badge[] = [];
  const free = known(steps.freeBlocks, row);
  const total = known(steps.totalBlocks, row);
  if (free !== null && total !== null) {
    const used = total - free;
    const pinned = Math.max(known(steps.pinnedBlocks, row) ?? 0, 0);
    const label = `VRAM: ava:${free} used:${used}/${total} pin:${pinned} active:${used - pinned}`;
    const size = `(${memory(used * bytes)} used / ${memory(total * bytes)} total)`;
    found.push({
      kind: "vram",
      label: `${label} ${size}`,
      title: BADGE_MEANINGS.vram,
    });
  }
  const cpuFree = known(steps.cpuFreeBlocks, row);
  const cpuTotal = known(steps.cpuTotalBlocks, row);
  if (cpuFree !== null && cpuTotal) {
    const used = cpuTotal - cpuFree;
    const size = `(${memory(used * bytes)} used / ${memory(cpuTotal * bytes)} total)`;
    found.push({
      kind: "dram",
      label: `DRAM: ava:${cpuFree} used:${used}/${cpuTotal} ${size}`,
      title: BADGE_MEANINGS.dram,
    });
  }
  return found;
}
