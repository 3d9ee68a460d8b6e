/**
 * Why a request waited: its waiting time divided among the reasons that held it, by the rule of docs/reasons.md ("The
 * waiting time of one request"). The same as src/tokenyard/explain/why/waits.py; shared vectors keep the two together.
 */

import { MISSING, type RequestIndex, type Row } from "./model/columns";
import { SPAN_KINDS } from "./model/lives";
import type { Outcome } from "./model/outcomes";
import { NO_REASON, type Reason, STEP_REASONS } from "./model/reasons";
import type { TraceStore } from "./model/trace";
import type { WaitingSplit, WaitState } from "./model/waiting";
import type { StoreInside } from "./store";
import { outcome } from "./verdict";
import {
  BETWEEN_STEPS,
  type Cause,
  FRONT_END,
  type Moments,
  micros,
  moments,
  NOT_LISTED,
  NOT_RECORDED,
  STEP_IN_PROGRESS,
  Tally,
} from "./waitingTally";
import { holds } from "./wording";

export function waitingSplit(store: TraceStore, request: RequestIndex): WaitingSplit {
  const split = new Splitter(store as StoreInside, request);
  split.run();
  const parts = [...split.tally.parts.values()].sort((a, b) => b.us - a.us || (a.reason < b.reason ? -1 : 1));
  const us = parts.reduce((total, part) => total + part.us, 0);
  return {
    request,
    us,
    seconds: us / 1e6,
    byState: split.tally.byState,
    steps: split.tally.rows.size,
    arrivedUs: split.arrivedUs,
    firstScheduledUs: split.scheduledUs,
    untilUs: split.untilUs,
    parts,
    spans: split.tally.spans,
    reconstructed: split.reconstructed,
  };
}

class Splitter {
  readonly tally = new Tally();
  readonly reconstructed: boolean;
  arrivedUs: number | null = null;
  scheduledUs: number | null = null;
  untilUs: number;
  private readonly moments: Moments;
  /** The row after whose decision it ended; -1 if the trace does not end it. */
  private readonly endRow: Row;

  constructor(
    private readonly store: StoreInside,
    private readonly request: RequestIndex,
  ) {
    const { requests, rows } = store;
    this.reconstructed = !store.livesRecorded && store.start === null;
    this.moments = moments(store);
    const recordedEnd = requests.finishedRow[request];
    const last = requests.lastRow[request];
    this.endRow = recordedEnd >= 0 ? recordedEnd : this.reconstructed && last >= 0 && last + 1 < rows ? last : -1;
    const finished = requests.finishedTime[request];
    const end = Number.isNaN(finished) ? Number.NEGATIVE_INFINITY : micros(finished);
    this.untilUs = this.endRow < 0 ? this.moments.last : Math.max(this.moments.at[this.endRow], end);
  }

  run(): void {
    const { requests, spans } = this.store;
    const arrival = requests.arrivalTime[this.request];
    this.arrivedUs = Number.isNaN(arrival) ? null : micros(arrival);
    const running = this.firstRunning();
    const recorded = requests.arrivedRow[this.request];
    const late = !this.reconstructed && this.endRow >= 0 && (recorded < 0 || recorded > this.endRow);
    if (late && running < 0) this.cameAndWent();
    else this.queued(this.reconstructed || recorded < 0 ? requests.firstRow[this.request] : recorded, running);
    const end = spans.starts[this.request + 1] ?? 0;
    for (let span = spans.starts[this.request]; span < end; span++) {
      if (spans.kind[span] === SPAN_KINDS.preempted) this.preempted(span, span + 1 < end);
      else if (spans.kind[span] === SPAN_KINDS.running) this.stalls(spans.first[span], spans.last[span]);
    }
    this.tally.spans.sort((a, b) => a.startUs - b.startUs);
  }

  /** The row that scheduled it first, or that shows it running and takes its blocks; -1 if there is none. */
  private firstRunning(): Row {
    const { spans } = this.store;
    for (let span = spans.starts[this.request]; span < (spans.starts[this.request + 1] ?? 0); span++) {
      if (spans.kind[span] !== SPAN_KINDS.queued) return spans.first[span];
    }
    return -1;
  }

  /** From its arrival to the snapshot of the step that schedules it first. */
  private queued(from: Row, running: Row): void {
    const { store, request } = this;
    const seen = from >= 0 && from < store.rows ? this.moments.at[from] : this.untilUs;
    const row = from >= 0 ? from : store.rows - 1;
    const { requests, steps } = store;
    const start = Math.min(this.arrivedUs ?? seen, seen);
    this.arrivedUs = start;
    const fromRecord = micros(requests.firstScheduledTime[request]);
    if (running < 0 && requests.timesRecorded[request] && !Number.isNaN(fromRecord)) {
      this.scheduledUs = fromRecord;
      this.tally.pass("queued", NOT_RECORDED, row, start, Math.max(fromRecord, start));
      return;
    }
    const before = (from >= 0 ? from : store.rows) - 1;
    this.untilSeen(
      row,
      before,
      start,
      Math.min(seen, running < 0 ? this.untilUs : Number.POSITIVE_INFINITY),
      from >= 0,
    );
    if (running < 0) {
      if (from >= 0) this.held("queued", from, this.endRow < 0 ? store.rows - 1 : this.endRow, seen, this.untilUs);
      return;
    }
    let scheduled = this.moments.at[running];
    const away = requests.lookupRow[request] === running && requests.lookupStep[request] < steps.number[running];
    if (away && !Number.isNaN(requests.lookupTs[request])) {
      scheduled = Math.min(micros(requests.lookupTs[request]), scheduled);
      if (scheduled < seen) scheduled = seen;
    }
    this.scheduledUs = scheduled;
    this.held("queued", from, running - 1, seen, scheduled);
  }

  /** The time before the first snapshot that could show it: on its way, while the row before it ran, or no step did. */
  private untilSeen(row: Row, before: Row, start: number, seen: number, isSeen: boolean): void {
    const { requests, steps } = this.store;
    const step = requests.arrivedStep[this.request];
    if (!this.reconstructed && step !== MISSING && step < steps.number[row]) {
      this.tally.pass("queued", NOT_RECORDED, row, start, seen);
      return;
    }
    let over = start;
    if (before >= 0) {
      const completed = steps.completedTs[before];
      over = Number.isNaN(completed) ? seen : Math.min(Math.max(micros(completed), start), seen);
    }
    // As src/tokenyard/explain/why/waits.py has it.
    const sent = before < 0 ? start : Math.min(Math.max(this.moments.at[before], start), seen);
    over = Math.max(over, sent);
    const takenIn = requests.takenInTime[this.request];
    const known = isSeen && steps.numRunning[row] === 0 && !Number.isNaN(takenIn);
    const there = known ? Math.min(Math.max(micros(takenIn), over), seen) : over;
    this.tally.pass("queued", FRONT_END, row, start, sent);
    this.tally.pass("queued", STEP_IN_PROGRESS, row, sent, over);
    this.tally.pass("queued", FRONT_END, row, over, there);
    this.tally.pass("queued", BETWEEN_STEPS, row, there, seen);
  }

  /** It arrived and ended between two snapshots, or before the trace began. */
  private cameAndWent(): void {
    const { requests, steps } = this.store;
    const row = this.endRow;
    const start = Math.min(this.arrivedUs ?? this.untilUs, this.untilUs);
    this.arrivedUs = start;
    const scheduled = requests.firstScheduledTime[this.request];
    if (!Number.isNaN(scheduled)) {
      this.scheduledUs = micros(scheduled);
      this.tally.pass("queued", NOT_RECORDED, row, start, Math.max(this.scheduledUs, start));
    } else if (start < this.moments.at[row]) {
      this.tally.pass("queued", NOT_RECORDED, row, start, this.untilUs);
    } else {
      const completed = steps.completedTs[row];
      const over = Number.isNaN(completed) ? this.untilUs : Math.min(Math.max(micros(completed), start), this.untilUs);
      this.tally.pass("queued", STEP_IN_PROGRESS, row, start, over);
      this.tally.pass("queued", BETWEEN_STEPS, row, over, this.untilUs);
    }
  }

  private preempted(span: number, goesOn: boolean): void {
    const { spans } = this.store;
    const [first, last] = [spans.first[span], spans.last[span]];
    const end = goesOn ? this.moments.at[last + 1] : this.untilUs;
    this.held("preempted", first, last, this.moments.at[first], end);
  }

  /** Rows first .. last did not schedule it: each has one cause for the time until the next. */
  private held(state: WaitState, first: Row, last: Row, start: number, end: number): void {
    for (let row = first; row <= last; row++) {
      const from = Math.max(this.moments.at[row], start);
      const next = row + 1 < this.store.rows ? this.moments.at[row + 1] : this.moments.last;
      this.tally.pass(state, this.cause(row), row, from, row === last ? end : Math.min(next, end));
    }
  }

  /** Rows in which it ran and got no tokens. */
  private stalls(first: Row, last: Row): void {
    const { steps, outcomes, rows } = this.store;
    for (let row = first; row <= last; row++) {
      const at = steps.outcome[row];
      if (at < 0 || !outcomes.rest[at].includes('"notScheduled":[{')) continue;
      const refusal = outcome(this.store, row)?.notScheduled.find(({ request }) => request === this.request);
      if (!refusal || !holds(refusal.reason)) continue;
      const next = row + 1 < rows ? this.moments.at[row + 1] : this.moments.last;
      const end = row === this.endRow ? Math.min(next, this.untilUs) : next;
      this.tally.pass("stalled", { reason: refusal.reason, place: "own", head: null }, row, this.moments.at[row], end);
    }
  }

  /** Why a step did not schedule it while it waited. */
  private cause(row: Row): Cause {
    const { store, request } = this;
    const { lists, steps } = store;
    const found = outcome(store, row);
    const start = lists.preempted.starts[row];
    for (let i = 0; i < lists.preempted.counts[row]; i++) {
      if (lists.preempted.ids[start + i] !== request) continue;
      const own = found?.preemptions.some((victim) => victim.request === request && victim.forRequest === request);
      const reason: Reason = own ? "self_preempted" : "preempted_this_step";
      return { reason, place: "own", head: null };
    }
    if (found) return causeIn(found, request);
    const guess = steps.stepReason[row];
    return guess === NO_REASON ? NOT_RECORDED : { reason: STEP_REASONS[guess], place: "guess", head: null };
  }
}

/** The cause of a waiting request in a step with an outcome. */
function causeIn(found: Outcome, request: RequestIndex): Cause {
  const held = found.reason !== null && (found.numRequests ?? 0) > 0;
  if (held && found.request === request) return { reason: found.reason as string, place: "own", head: null };
  // A request that is listed twice is what it was last.
  const skipped = found.skipped.findLast((refusal) => refusal.request === request);
  if (skipped) return { reason: skipped.reason, place: "own", head: null };
  const causes: Cause[] = notListed(found).map((reason) => ({ reason, place: "own", head: null }));
  if (held) {
    const behind = found.request !== null;
    causes.push({ reason: found.reason as string, place: behind ? "behind" : "all", head: found.request });
  }
  if (causes.length === 0) return NOT_RECORDED;
  return new Set(causes.map(({ reason }) => reason)).size === 1 ? causes[causes.length - 1] : NOT_LISTED;
}

/** Reasons of skipped requests that a bound on ids leaves out of the list. */
function notListed(found: Outcome): string[] {
  if (!found.skippedOmitted) return [];
  return Object.entries(found.skippedCounts ?? {})
    .filter(([reason, count]) => count > found.skipped.filter((refusal) => refusal.reason === reason).length)
    .map(([reason]) => reason);
}

/** Queued and preempted time alone, quickly: for lanes, of which there may be a million. */
export function waitingSeconds(store: TraceStore, request: RequestIndex): number {
  const { spans, steps, requests, rows } = store;
  let seconds = 0;
  for (let span = spans.starts[request]; span < (spans.starts[request + 1] ?? 0); span++) {
    if (spans.kind[span] === SPAN_KINDS.running) continue;
    const queued = spans.kind[span] === SPAN_KINDS.queued;
    const arrival = requests.arrivalTime[request];
    const begin =
      queued && !Number.isNaN(arrival) ? Math.min(arrival, steps.ts[spans.first[span]]) : steps.ts[spans.first[span]];
    const last = spans.last[span];
    const end =
      last + 1 < rows
        ? steps.ts[last + 1]
        : Math.max(steps.ts[last], steps.completedTs[last] || 0, store.start?.endedAt ?? 0);
    if (end > begin) seconds += end - begin;
  }
  const first = requests.firstRow[request];
  const from = spans.starts[request];
  if (first >= 0 && spans.kind[from] === SPAN_KINDS.running && requests.arrivalTime[request] < steps.ts[first]) {
    seconds += steps.ts[first] - requests.arrivalTime[request];
  }
  return seconds;
}
