/** Lives of requests, and the lanes of jobs in which they are drawn. */

import type { JobIndex, RequestIndex, Row } from "./model/columns";
import type { JobLane, Lanes, Phase, PhaseKind, RequestLife } from "./model/lives";
import { SPAN_KINDS } from "./model/lives";
import type { TraceStore } from "./model/trace";
import { breathe, inSlices } from "./slices";
import { waitingSeconds } from "./waiting";

/** When a row is over: the next one's beginning, else the last moment in the trace. */
export function endOfRow(store: TraceStore, row: Row): number {
  return row + 1 < store.rows ? store.steps.ts[row + 1] : lastMoment(store);
}

/** Seconds from the beginning of a row to that of the next; 0 where the trace does not record it. */
export function secondsOf(store: TraceStore, row: Row): number {
  return Math.max(endOfRow(store, row) - store.steps.ts[row], 0) || 0;
}

const lastMoments = new WeakMap<TraceStore, { version: number; at: number }>();

function lastMoment(store: TraceStore): number {
  const found = lastMoments.get(store);
  if (found?.version === store.version) return found.at;
  let at = store.start?.endedAt ?? Number.NaN;
  for (const column of [store.steps.ts, store.steps.completedTs, store.requests.finishedTime]) {
    for (const moment of column) if (!(moment <= at) && !Number.isNaN(moment)) at = moment;
  }
  lastMoments.set(store, { version: store.version, at });
  return at;
}

export function life(store: TraceStore, request: RequestIndex): RequestLife {
  const { spans, requests, steps, rows } = store;
  const phases: Phase[] = [];
  const add = (kind: PhaseKind, first: Row, last: Row) => {
    if (last >= first) phases.push({ kind, first, last, begin: steps.ts[first], end: endOfRow(store, last) });
  };
  for (let span = spans.starts[request]; span < (spans.starts[request + 1] ?? 0); span++) {
    const [first, last] = [spans.first[span], spans.last[span]];
    if (spans.kind[span] === SPAN_KINDS.running) {
      const decode = spans.decodeFrom[span];
      add("prefill", first, Math.min(decode - 1, last));
      add("decode", Math.max(decode, first), last);
    } else {
      add(spans.kind[span] === SPAN_KINDS.queued ? "queued" : "preempted", first, last);
    }
  }
  const first = phases[0];
  const last = phases.at(-1);
  const arrival = requests.arrivalTime[request];
  const finished = requests.finishedTime[request];
  if (first && arrival < first.begin) {
    // Admitted by the first step that saw it: the wait is shorter than a row, and still a wait.
    if (first.kind === "queued") first.begin = arrival;
    else
      phases.unshift({ kind: "queued", first: first.first, last: first.first - 1, begin: arrival, end: first.begin });
  }
  if (last && finished >= last.begin) last.end = finished;
  firstToken(phases, requests.firstTokenTime[request]);
  return { request, phases, unfinished: Number.isNaN(finished) || (last !== undefined && last.last >= rows) };
}

/** Prefill ends with the first token where its time is recorded, not with the step that brings it: as `tokenyard why` counts. */
function firstToken(phases: Phase[], token: number): void {
  const at = phases.findIndex(({ kind, end }) => kind === "prefill" && token <= end);
  const place =
    at >= 0 ? at : phases.findIndex(({ kind, begin, end }) => kind === "decode" && token > begin && token <= end);
  if (place < 0) return;
  const phase = phases[place];
  const next = phases[place + 1];
  const before = phases[place - 1];
  if (phase.kind === "prefill" && token >= phase.begin) {
    phase.end = token;
    if (next?.kind === "decode") next.begin = token;
  } else if (phase.kind === "decode" && before?.kind === "prefill") {
    before.end = token;
    phase.begin = token;
  }
}

/** All lanes, in order of first arrival. */
export async function lanes(store: TraceStore): Promise<Lanes> {
  const { version } = store;
  const members = await laneMembers(store);
  const count = members.length;
  const found: Lanes = {
    version,
    count,
    job: new Int32Array(count),
    request: new Int32Array(count),
    begin: new Float64Array(count),
    end: new Float64Array(count),
    waited: new Float64Array(count),
    firstRow: new Int32Array(count),
    lastRow: new Int32Array(count),
    lane: (index) => laneOf(store, found, index),
  };
  await inSlices(0, count - 1, (index) => {
    const { job, request } = members[index];
    found.job[index] = job;
    found.request[index] = request;
    found.begin[index] = Number.POSITIVE_INFINITY;
    found.end[index] = Number.NEGATIVE_INFINITY;
    found.firstRow[index] = -1;
    found.lastRow[index] = -1;
    for (const turn of membersOf(store, job, request)) measure(store, found, index, turn);
    if (found.begin[index] > found.end[index]) {
      found.begin[index] = Number.NaN;
      found.end[index] = Number.NaN;
    }
  });
  return found;
}

function measure(store: TraceStore, found: Lanes, index: number, turn: RequestIndex): void {
  const { requests, steps, rows } = store;
  const [first, last] = [requests.firstRow[turn], requests.lastRow[turn]];
  const arrival = requests.arrivalTime[turn];
  const finished = requests.finishedTime[turn];
  const end = Number.isNaN(finished) ? (rows > 0 ? endOfRow(store, last < 0 ? rows - 1 : last) : Number.NaN) : finished;
  // It may have arrived after the last moment of the trace.
  const begin = arrival > end ? end : arrival;
  if (begin < found.begin[index]) found.begin[index] = begin;
  if (first >= 0 && steps.ts[first] < found.begin[index]) found.begin[index] = steps.ts[first];
  if (end > found.end[index]) found.end[index] = end;
  if (first >= 0 && (found.firstRow[index] < 0 || first < found.firstRow[index])) found.firstRow[index] = first;
  if (last > found.lastRow[index]) found.lastRow[index] = last;
  found.waited[index] += waitingSeconds(store, turn);
}

async function laneMembers(store: TraceStore): Promise<{ job: JobIndex; request: RequestIndex }[]> {
  const { requests, jobs } = store;
  const members: { job: JobIndex; request: RequestIndex; at: number }[] = [];
  const moment = (request: RequestIndex) => {
    const at = requests.arrivalTime[request];
    return Number.isNaN(at) ? Number.POSITIVE_INFINITY : at;
  };
  await inSlices(0, jobs.count - 1, (job) => {
    if (jobs.requests.counts[job] <= 0) return;
    const first = jobs.requests.ids[jobs.requests.starts[job]];
    members.push({ job, request: first, at: moment(first) });
  });
  await inSlices(0, requests.count - 1, (request) => {
    // Ids that only an outcome names have no lane.
    const seen = requests.firstRow[request] >= 0 || requests.timesRecorded[request] > 0;
    if (requests.job[request] < 0 && seen) members.push({ job: -1, request, at: moment(request) });
  });
  await breathe();
  members.sort((a, b) => (a.at === b.at ? a.request - b.request : a.at < b.at ? -1 : 1));
  return members;
}

/** The requests of a lane: those of its job, or the one that has none. */
export function membersOf(
  { jobs }: TraceStore,
  job: JobIndex,
  request: RequestIndex,
): ArrayLike<number> & Iterable<number> {
  if (job < 0) return [request];
  const start = jobs.requests.starts[job];
  return jobs.requests.ids.subarray(start, start + jobs.requests.counts[job]);
}

function laneOf(store: TraceStore, found: Lanes, index: number): JobLane {
  const job = found.job[index];
  const { spans, steps, jobs, requests } = store;
  const pinned = [];
  if (job >= 0) {
    for (let span = spans.pinnedStarts[job]; span < (spans.pinnedStarts[job + 1] ?? 0); span++) {
      const [first, last] = [spans.pinnedFirst[span], spans.pinnedLast[span]];
      pinned.push({ first, last, begin: steps.ts[first], end: endOfRow(store, last) });
    }
  }
  return {
    job,
    label: job >= 0 ? jobs.ids[job] : requests.ids[found.request[index]],
    turns: Array.from(membersOf(store, job, found.request[index]), (turn) => life(store, turn)),
    pinned,
    waited: found.waited[index],
    begin: found.begin[index],
    end: found.end[index],
  };
}
