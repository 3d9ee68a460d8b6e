/**
 * The requests that held the others back: each step's loss, shared out among those that had what was missing. For the token budget by the
 * tokens that each got; for KV blocks by the tokens whose KV each holds, or, where plenty are free, the head of the queue,
 * which needs more; for max_num_seqs all that ran, alike; for LoRA slots the adapters that ran, alike.
 */

import { endOfRow, secondsOf } from "./lives";
import { MISSING, type Range, type RequestIndex, type Row } from "./model/columns";
import { type Asked, type Blame, type BlamedGroup, type Burst, type Culprit, HAD, type Had } from "./model/pressure";
import type { TraceStore } from "./model/trace";
import { eachHeld } from "./shares";
import { breathe, inSlices } from "./slices";
import { adapterOf, isOfSeats, isOfSlots, isOfTokens, traits } from "./takers";
import { victimsOf } from "./victims";
import { familyOf } from "./wording";

export async function blame(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Blame> {
  const kinds = store.reasonNames.map(kindOf);
  const counter = new Counter(store);
  await inSlices(
    // What a request holds was computed before.
    kinds.includes("blocks") ? 0 : range.first,
    range.last,
    (row) => {
      counter.compute(row);
      if (row < range.first) return;
      let seconds = 0;
      eachHeld(store, row, (reason, requests) => {
        const had = kinds[reason];
        if (!had) return;
        seconds ||= secondsOf(store, row);
        counter.share(row, had, seconds * requests, requests);
      });
    },
    signal,
  );
  const { sums, totals, unnamed } = counter;
  const culprits: Culprit[] = [];
  for (const had of HAD) {
    sums[had].forEach((seconds, request) => {
      if (seconds > 0) culprits.push({ request, seconds, share: seconds / totals[had], had });
    });
  }
  culprits.sort((a, b) => b.seconds - a.seconds);
  const everywhere = new Map<string, Everywhere>();
  await inSlices(
    0,
    store.requests.count - 1,
    (request) => {
      const at = store.requests.arrivalTime[request];
      for (const trait of traits(store, request)) {
        const known = everywhere.get(`${trait}`) ?? { all: 0, from: Number.NaN, to: Number.NaN };
        everywhere.set(`${trait}`, {
          all: known.all + 1,
          from: known.from <= at ? known.from : at || known.from,
          to: known.to >= at ? known.to : at || known.to,
        });
      }
    },
    signal,
  );
  const victims = await victimsOf(store, range, signal);
  const groups = groupsOf(store, culprits, everywhere);
  await findBursts(store, groups, signal);
  return { range, totals, unnamed, culprits, victims, groups };
}

/** Of a loss, and times what of all requests are theirs: groups with less are not named. */
const NAMED = 0.5;
const OVER = 1.5;

async function findBursts(store: TraceStore, groups: readonly BlamedGroup[], signal?: AbortSignal): Promise<void> {
  const { requests, rows, steps } = store;
  const [begin, end] = [steps.ts[0], endOfRow(store, rows - 1)];
  const times = new Map<string, number[]>();
  for (const { key, name, share, part } of groups) {
    if (share >= NAMED && share >= OVER * part) times.set(`${[key, name]}`, []);
  }
  const look = (request: RequestIndex) => {
    const at = requests.arrivalTime[request];
    if (Number.isNaN(at)) return;
    for (const trait of traits(store, request)) times.get(`${trait}`)?.push(at);
  };
  if (times.size > 0) await inSlices(0, requests.count - 1, look, signal);
  for (const group of groups) {
    const came = times.get(`${[group.key, group.name]}`);
    if (!came) continue;
    await breathe();
    signal?.throwIfAborted();
    group.burst = burstOf(Float64Array.from(came).sort(), end - begin);
  }
}

/** Of those that came, and how much more than of the time: less is no burst. */
const MOST = 0.5;
const EXCESS = 0.4;

/** The while in which most came beyond what its part of the time is; null if there is none. `times` in order. */
export function burstOf(times: Float64Array, seconds: number): Burst | null {
  const { length } = times;
  // How far those that came are ahead of an even stream: a burst is from the lowest point to the highest one after it.
  const ahead = (at: number) => at / length - times[at] / seconds;
  let [low, from, to, most] = [0, 0, 0, 0];
  for (let at = 0; at < length; at++) {
    if (ahead(at) < ahead(low)) low = at;
    const excess = ahead(at) - ahead(low) + 1 / length;
    if (excess > most) [from, to, most] = [low, at, excess];
  }
  const requests = to - from + 1;
  return most >= EXCESS && requests > 1 && requests >= MOST * length
    ? { requests, from: times[from], to: times[to] }
    : null;
}

/** What those had for whom a reason was missing; null: none in this engine. */
export function kindOf(reason: string): Had | null {
  if (isOfTokens(reason)) return "tokens";
  if (isOfSeats(reason)) return "seat";
  if (isOfSlots(reason)) return "slot";
  return familyOf(reason) === "memory" ? "blocks" : null;
}

/** Of the blocks: where more are free others would fit. */
const ROOM = 0.2;

const each = <T>(make: () => T) => Object.fromEntries(HAD.map((had) => [had, make()])) as Record<Had, T>;

class Counter {
  readonly totals = each(() => 0);
  readonly unnamed = each(() => 0);
  readonly sums: Record<Had, Float64Array>;
  /** Tokens of each request whose KV is there, as far as the steps show. */
  private readonly computed: Float64Array;

  constructor(private readonly store: TraceStore) {
    this.sums = each(() => new Float64Array(store.requests.count));
    this.computed = new Float64Array(store.requests.count);
  }

  compute(row: Row): void {
    const { scheduled, preempted, scheduledNew } = this.store.lists;
    const { localHitTokens } = this.store.requests;
    const { computed } = this;
    for (let at = preempted.starts[row]; at < preempted.starts[row] + preempted.counts[row]; at++) {
      computed[preempted.ids[at]] = 0;
    }
    for (let at = scheduledNew.starts[row]; at < scheduledNew.starts[row] + scheduledNew.counts[row]; at++) {
      const hit = localHitTokens[scheduledNew.ids[at]];
      computed[scheduledNew.ids[at]] = hit === MISSING ? 0 : hit;
    }
    for (let at = scheduled.starts[row]; at < scheduled.starts[row] + scheduled.counts[row]; at++) {
      computed[scheduled.ids[at]] += scheduled.tokens[at];
    }
  }

  /** What of the loss can be put down to requests. */
  share(row: Row, had: Had, lost: number, held: number): void {
    const { lists, outcomes, steps } = this.store;
    if (had === "blocks" && steps.freeBlocks[row] >= ROOM * steps.totalBlocks[row]) {
      const head = outcomes.request[steps.outcome[row]];
      // It waits itself: only the others count.
      if (head >= 0) this.add("head", head, (lost * (held - 1)) / held);
      return;
    }
    const list = had === "tokens" ? lists.scheduled : lists.running;
    const [start, end] = [list.starts[row], list.starts[row] + Math.max(list.counts[row], 0)];
    const adapters = had === "slot" ? this.runningBy(start, end) : null;
    const weight = (i: number) => {
      if (had === "tokens") return lists.scheduled.tokens[i];
      if (had === "blocks") return this.computed[list.ids[i]];
      return adapters ? 1 / (adapters.get(adapterOf(this.store, list.ids[i])) ?? Number.POSITIVE_INFINITY) : 1;
    };
    let named = 0;
    for (let i = start; i < end; i++) named += weight(i);
    // A bounded trace names the first of many that ran: what the others had is put down to none.
    const total = Math.max(named, had === "tokens" ? steps.tokenSum[row] : had === "seat" ? steps.numRunning[row] : 0);
    if (!(total > 0)) return;
    for (let i = start; i < end; i++) this.add(had, list.ids[i], (lost * weight(i)) / total);
    const rest = (lost * (total - named)) / total;
    this.totals[had] += rest;
    this.unnamed[had] += rest;
  }

  /** Adapter -> requests of it that run. */
  private runningBy(start: number, end: number): Map<string, number> {
    const found = new Map<string, number>();
    for (let i = start; i < end; i++) {
      const adapter = adapterOf(this.store, this.store.lists.running.ids[i]);
      if (adapter) found.set(adapter, (found.get(adapter) ?? 0) + 1);
    }
    return found;
  }

  private add(had: Had, request: RequestIndex, seconds: number): void {
    this.sums[had][request] += seconds;
    this.totals[had] += seconds;
  }
}

/** Of all requests of the trace that have a trait. */
interface Everywhere {
  all: number;
  from: number;
  to: number;
}

function groupsOf(
  store: TraceStore,
  culprits: readonly Culprit[],
  everywhere: ReadonlyMap<string, Everywhere>,
): BlamedGroup[] {
  const found = new Map<string, BlamedGroup>();
  for (const { request, seconds, share, had } of culprits) {
    for (const trait of traits(store, request)) {
      const [key, name] = trait;
      // Slots are the adapters'.
      if (had === "slot" && key !== "lora") continue;
      // A long answer keeps its seat; what a step computes, and the KV that is there, say more of prompts.
      if (had !== "seat" && key === "output") continue;
      const there = everywhere.get(`${trait}`);
      if (!there) continue;
      const part = there.all / store.requests.count;
      const id = `${had},${trait}`;
      const sum = found.get(id) ?? {
        key,
        name,
        had,
        part,
        ...there,
        seconds: 0,
        share: 0,
        requests: 0,
        burst: null,
        asked: NOTHING,
      };
      found.set(id, {
        ...sum,
        ...{ seconds: sum.seconds + seconds, share: sum.share + share, requests: sum.requests + 1 },
        asked: askedWith(sum.asked, store, request),
      });
    }
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}

const NOTHING: Asked = { prompts: 0, promptTokens: 0, answers: 0, outputTokens: 0, items: 0, itemTokens: 0 };

/** What some requests needed, and one more. */
function askedWith(sum: Asked, { requests }: TraceStore, request: RequestIndex): Asked {
  const [prompt, output] = [requests.promptTokens[request], requests.outputTokens[request]];
  return {
    prompts: sum.prompts + Number(prompt >= 0),
    promptTokens: sum.promptTokens + Math.max(prompt, 0),
    answers: sum.answers + Number(output >= 0),
    outputTokens: sum.outputTokens + Math.max(output, 0),
    items: sum.items + Math.max(requests.items[request], 0),
    itemTokens: sum.itemTokens + Math.max(requests.itemTokens[request], 0),
  };
}

/** What one request needed. */
export function askedBy(store: TraceStore, request: RequestIndex): Asked {
  return askedWith(NOTHING, store, request);
}
