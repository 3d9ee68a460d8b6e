/** What the steps of a range are shown as: how many there are, how long they took, and what they cost those that waited. */

import { secondsOf } from "./lives";
import { MISSING, type Range, type Row } from "./model/columns";
import type { Share } from "./model/statistics";
import type { TraceStore } from "./model/trace";

/** The requests that a row held back, by recorded reason (index into `reasonNames`). */
export function eachHeld(store: TraceStore, row: Row, take: (reason: number, requests: number) => void): void {
  const at = store.steps.outcome[row];
  if (at < 0) return;
  const { byReason } = store.outcomes;
  const start = byReason.starts[at];
  for (let i = start; i < start + byReason.counts[at]; i++) take(byReason.ids[i], byReason.requests[i]);
}

/** Trouble first, most time lost first: what cost most stands in front. */
export function shares(store: TraceStore, range: Range): Share[] {
  const { shown, unadmitted } = store.steps;
  const found = store.shown.map((_, index): Share => ({ index, rows: 0, seconds: 0, lost: 0, first: -1, last: -1 }));
  const byReason = store.reasonNames.map((name) =>
    found.find(({ index }) => store.shown[index].recorded && store.shown[index].name === name),
  );
  for (let row = range.first; row <= range.last; row++) {
    const share = found[shown[row]];
    const seconds = secondsOf(store, row);
    share.rows += 1;
    share.seconds += seconds;
    see(share, row);
    eachHeld(store, row, (reason, requests) => {
      const held = byReason[reason];
      if (!held) return;
      held.lost += seconds * requests;
      if (requests > 0) see(held, row);
    });
    const { blocked, recorded } = store.shown[share.index];
    if (blocked && !recorded && unadmitted[row] !== MISSING) share.lost += seconds * unadmitted[row];
  }
  const blocked = (share: Share) => Number(store.shown[share.index].blocked);
  return found
    .filter((share) => share.rows > 0)
    .sort((a, b) => blocked(b) - blocked(a) || b.lost - a.lost || b.seconds - a.seconds || b.rows - a.rows);
}

function see(share: Share, row: Row): void {
  if (share.first < 0) share.first = row;
  share.last = row;
}
