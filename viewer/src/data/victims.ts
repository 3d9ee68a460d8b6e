/** Who waited in a stretch: the time that requests stood in the queue within it, and what those have in common who did. */

import { endOfRow } from "./lives";
import { MISSING, type Range, type RequestIndex } from "./model/columns";
import type { Trait, VictimGroup, Victims } from "./model/pressure";
import type { TraceStore } from "./model/trace";
import { inSlices } from "./slices";
import { traits } from "./takers";

/** Of the waiting: smaller shares are not most of it. */
const HALF = 0.5;
/** So many times the odds of a request that is there at all. */
const OVER = 2;
/** Several groups of one kind, where no single one has half. */
const TOGETHER = 3;
/** Of the waiting: where none stands out, groups that the most of it divides into. */
const MOST_OF_IT = 0.8;
const WORTH_NAMING = 0.1;
/** Which things in common say more. Not the lengths of prompts: short ones wait behind long ones everywhere. */
const TELLING: readonly Trait[] = ["lora", "tenant", "user", "job", "req", "priority"];
const OWNERS: ReadonlySet<Trait> = new Set<Trait>(["lora", "tenant", "user"]);

interface Sum {
  key: Trait;
  name: string;
  seconds: number;
  requests: number;
  there: number;
}

export async function victimsOf(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Victims | null> {
  const begin = store.steps.ts[range.first];
  const end = endOfRow(store, range.last);
  const { arrivalTime, firstScheduledTime, finishedTime, priority, count } = store.requests;
  const sums = new Map<string, Sum>();
  const byPriority = new Map<number, number>();
  let [seconds, there] = [0, 0];
  const look = (request: RequestIndex) => {
    const arrived = arrivalTime[request];
    // Not `>=`: of a request that did not end nothing is known.
    if (!(arrived < end) || finishedTime[request] < begin) return;
    there += 1;
    const left = firstOf(firstScheduledTime[request], finishedTime[request], end);
    const waited = Math.max(Math.min(left, end) - Math.max(arrived, begin), 0);
    seconds += waited;
    if (priority[request] !== MISSING) {
      byPriority.set(priority[request], (byPriority.get(priority[request]) ?? 0) + waited);
    }
    for (const [key, name] of traits(store, request)) {
      const id = `${key},${name}`;
      const sum = sums.get(id) ?? { key, name, seconds: 0, requests: 0, there: 0 };
      sums.set(id, {
        ...sum,
        ...{ seconds: sum.seconds + waited, there: sum.there + 1, requests: sum.requests + Number(waited > 0) },
      });
    }
  };
  await inSlices(0, count - 1, look, signal);
  if (!(seconds > 0)) return null;
  const most = [...byPriority].sort((a, b) => b[1] - a[1])[0];
  const all = [...sums.values()];
  const groups = standingOut(all, seconds, there);
  return {
    ...{ seconds, priority: most ? most[0] : null, groups },
    parts: groups.length > 0 ? [] : partsOf(all, seconds),
  };
}

function firstOf(...moments: number[]): number {
  return moments.find((moment) => !Number.isNaN(moment)) ?? Number.NaN;
}

/** The group that most of the waiting is of, or a few of one kind; none if all waited alike. */
function standingOut(sums: Sum[], seconds: number, there: number): VictimGroup[] {
  const groups = sums.map(({ there: part, ...sum }) => {
    const share = sum.seconds / seconds;
    return { ...sum, share, odds: odds(share) / odds(part / there) };
  });
  const over = groups.filter((group) => group.odds >= OVER && group.requests > 1).sort((a, b) => b.seconds - a.seconds);
  for (const key of TELLING) {
    const alike = over.filter((group) => group.key === key);
    const [single] = alike;
    if (single && single.share >= HALF) return [single];
    const few = OWNERS.has(key) ? alike.slice(0, TOGETHER) : [];
    if (few.reduce((sum, { share }) => sum + share, 0) >= HALF) return few;
  }
  return [];
}

function odds(share: number): number {
  return share / (1 - share);
}

/** Whose waiting it was where none stands out: the few groups of one kind that share most of it; none if there are no few. */
function partsOf(sums: Sum[], seconds: number): VictimGroup[] {
  const groups = sums.map(({ there: _, ...sum }) => ({ ...sum, share: sum.seconds / seconds }));
  groups.sort((a, b) => b.seconds - a.seconds);
  for (const key of TELLING) {
    const few = groups.filter((group) => group.key === key && group.share >= WORTH_NAMING).slice(0, TOGETHER);
    // One that has all of it says nothing: all are of it.
    const told = few.length > 1 || (few.length === 1 && sums.filter((sum) => sum.key === key).length > 1);
    if (told && few.reduce((sum, { share }) => sum + share, 0) >= MOST_OF_IT) return few;
  }
  return [];
}
