/**
 * Who held the others back: each step's loss, shared out among those who had what was missing. For the token budget by the
 * tokens that each got; for KV blocks it is the request that stood refused at the head of the queue; for max_num_seqs all
 * who ran, alike.
 */

import { secondsOf } from "./lives";
import type { Range, RequestIndex, Row } from "./model/columns";
import type { Blame, Culprit } from "./model/pressure";
import type { TraceStore } from "./model/trace";
import { eachHeld } from "./shares";
import { inSlices } from "./slices";
import { isOfSeats, isOfTokens } from "./takers";
import { familyOf } from "./wording";

const HAD = ["tokens", "head", "seat"] as const;

export async function blame(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Blame> {
  const count = store.requests.count;
  const sums = { tokens: new Float64Array(count), head: new Float64Array(count), seat: new Float64Array(count) };
  const totals = { tokens: 0, head: 0, seat: 0 };
  const kinds = store.reasonNames.map((name) =>
    isOfTokens(name) ? "tokens" : isOfSeats(name) ? "seat" : familyOf(name) === "memory" ? "head" : null,
  );
  await inSlices(
    range.first,
    range.last,
    (row) => {
      let seconds = 0;
      eachHeld(store, row, (reason, requests) => {
        const had = kinds[reason];
        if (!had) return;
        seconds ||= secondsOf(store, row);
        totals[had] += share(store, row, had, seconds * requests, requests, sums[had]);
      });
    },
    signal,
  );
  const culprits: Culprit[] = [];
  for (let request = 0; request < count; request++) {
    for (const had of HAD) {
      const seconds = sums[had][request];
      if (seconds > 0) culprits.push({ request, seconds, share: seconds / totals[had], had });
    }
  }
  culprits.sort((a, b) => b.seconds - a.seconds);
  return { range, culprits, jobs: jobsOf(store, culprits) };
}

/** What of the loss could be put down to somebody. */
function share(
  { lists, outcomes, steps }: TraceStore,
  row: Row,
  had: Culprit["had"],
  lost: number,
  held: number,
  into: Float64Array,
): number {
  if (had === "head") {
    const head = outcomes.request[steps.outcome[row]];
    if (head < 0) return 0;
    // It waits itself: only the others count.
    const others = (lost * (held - 1)) / held;
    into[head] += others;
    return others;
  }
  const list = had === "tokens" ? lists.scheduled : lists.running;
  const [start, size] = [list.starts[row], Math.max(list.counts[row], 0)];
  let total = 0;
  if (had === "tokens") for (let at = start; at < start + size; at++) total += lists.scheduled.tokens[at];
  else total = size;
  if (!(total > 0)) return 0;
  for (let at = start; at < start + size; at++) {
    into[list.ids[at]] += (lost * (had === "tokens" ? lists.scheduled.tokens[at] : 1)) / total;
  }
  return lost;
}

function jobsOf({ requests, jobs }: TraceStore, culprits: readonly Culprit[]): Blame["jobs"] {
  const found = new Map<string, Blame["jobs"][number]>();
  const seen = new Map<string, Set<RequestIndex>>();
  for (const { request, seconds, share: part, had } of culprits) {
    const job = requests.job[request];
    const name = job < 0 ? /^(.{2,60}?[_\-.:])\d+$/.exec(requests.ids[request])?.[1] : jobs.ids[job];
    if (name === undefined) continue;
    const key = `${had} ${job} ${name}`;
    const sum = found.get(key) ?? { job, name, seconds: 0, share: 0, requests: 0, had };
    const members = seen.get(key) ?? new Set();
    members.add(request);
    seen.set(key, members);
    found.set(key, { ...sum, seconds: sum.seconds + seconds, share: sum.share + part, requests: members.size });
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
}
