/**
 * Where every request was, row by row: pieced together from who is in which queue, who was admitted and who lost his
 * blocks. Works on columns, so that it costs little while the queues stay as they are.
 */

import { IndexColumn } from "./columns";
import { forEach, grouped, sameAsBefore } from "./lists";
import { MISSING } from "./model/columns";
import { SPAN_KINDS, type Spans } from "./model/lives";
import type { RequestTable } from "./model/requests";
import type { StepColumns, StepLists } from "./model/steps";
import { pinnedSpans } from "./pinned";

const NOWHERE = -1;

/** What spans are made from. */
export interface SpanSource {
  rows: number;
  steps: StepColumns;
  lists: StepLists;
  requests: RequestTable;
  jobs: number;
}

class SpanBuilder {
  private readonly request = new IndexColumn();
  private readonly kind = new IndexColumn();
  private readonly first = new IndexColumn();
  private readonly last = new IndexColumn();
  private readonly decodeFrom = new IndexColumn();
  /** Per request: the kind of its open span, when it began, from when on it decodes (-1: not yet). */
  private readonly state: Int8Array;
  private readonly since: Int32Array;
  private readonly decodes: Int32Array;
  /** Per request: tokens computed since it was first admitted; -1 once they cannot be counted. */
  private readonly computed: Float64Array;
  private readonly stamp: Int32Array;
  /** Those that were in a queue when it was last looked at, or have come since. */
  private present: number[] = [];
  private readonly isPresent: Uint8Array;
  /** Requests that run and do not decode yet. */
  private prefilling = 0;
  private readonly arrivals: Map<number, number[]>;
  private readonly lookups: Map<number, number[]>;

  constructor(private readonly source: SpanSource) {
    const count = source.requests.count;
    this.state = new Int8Array(count).fill(NOWHERE);
    this.since = new Int32Array(count);
    this.decodes = new Int32Array(count).fill(-1);
    this.computed = new Float64Array(count).fill(-1);
    this.isPresent = new Uint8Array(count);
    this.stamp = new Int32Array(count).fill(-1);
    this.arrivals = groupBy(source.requests.arrivedRow, count);
    this.lookups = groupBy(source.requests.lookupRow, count);
  }

  build(): Spans {
    for (let row = 0; row < this.source.rows; row++) this.row(row);
    for (const request of this.present) this.end(request, this.source.rows - 1);
    const { starts, order } = grouped(this.request.data, this.request.length, this.source.requests.count);
    const sorted = (column: IndexColumn) => Int32Array.from(order, (place) => column.data[place]);
    return {
      starts,
      kind: Uint8Array.from(order, (place) => this.kind.data[place]),
      first: sorted(this.first),
      last: sorted(this.last),
      decodeFrom: sorted(this.decodeFrom),
      ...pinnedSpans(this.source),
    };
  }

  private row(row: number): void {
    const { lists } = this.source;
    for (const request of this.arrivals.get(row) ?? []) {
      if (this.state[request] === NOWHERE) this.begin(request, SPAN_KINDS.queued, row);
    }
    if (!this.asBefore(row)) this.queues(row);
    forEach(lists.preempted, row, (request) => {
      if (this.state[request] === SPAN_KINDS.running) this.end(request, row - 1);
      if (this.state[request] === NOWHERE) this.begin(request, SPAN_KINDS.preempted, row);
    });
    // A lookup tells who is admitted even where a bound cuts the list of the admitted.
    for (const request of this.lookups.get(row) ?? []) {
      // Of a step that was sampled away, told before the arrival is: the next queues show it.
      if (this.arrivesAfter(request, row)) continue;
      if (this.state[request] !== SPAN_KINDS.running) this.admit(request, row, true);
    }
    for (const [list, first] of [
      [lists.scheduledNew, true],
      [lists.scheduledResumed, false],
    ] as const) {
      forEach(list, row, (request) => {
        if (this.state[request] !== SPAN_KINDS.running) this.admit(request, row, first);
      });
    }
    if (this.prefilling > 0) this.progress(row);
  }

  private arrivesAfter(request: number, row: number): boolean {
    const { arrivedRow, arrivedStep } = this.source.requests;
    return arrivedRow[request] < 0 ? arrivedStep[request] !== MISSING : arrivedRow[request] > row;
  }

  /** Nothing can have changed in the queues since the row before. */
  private asBefore(row: number): boolean {
    if (row === 0) return false;
    const { lists, steps } = this.source;
    const before = row - 1;
    if (lists.scheduledNew.counts[before] > 0 || lists.scheduledResumed.counts[before] > 0) return false;
    if (lists.preempted.counts[before] > 0) return false;
    if (steps.runningOmitted[row] > 0 || steps.waitingOmitted[row] > 0) return false;
    return sameAsBefore(lists.running, row) && sameAsBefore(lists.waiting, row);
  }

  /** The requests that are there, and those that have left. */
  private queues(row: number): void {
    const { lists, steps, requests } = this.source;
    if (lists.running.counts[row] === MISSING && lists.waiting.counts[row] === MISSING) return;
    forEach(lists.running, row, (request) => {
      this.stamp[request] = row;
      if (this.state[request] !== SPAN_KINDS.running) this.admit(request, row, false);
    });
    forEach(lists.waiting, row, (request) => {
      this.stamp[request] = row;
      if (this.state[request] === SPAN_KINDS.running) {
        this.end(request, row - 1);
        this.begin(request, SPAN_KINDS.preempted, row);
      } else if (this.state[request] === NOWHERE) {
        this.begin(request, SPAN_KINDS.queued, row);
      }
    });
    const hidden = steps.runningOmitted[row] > 0 || steps.waitingOmitted[row] > 0;
    const still: number[] = [];
    for (const request of this.present) {
      const finished = requests.finishedRow[request];
      const over = finished >= 0 && finished < row;
      // A request that is not listed may be beyond the bound on ids.
      if (this.stamp[request] !== row && (!hidden || over)) this.end(request, over ? finished : row - 1);
      if (this.state[request] === NOWHERE) this.isPresent[request] = 0;
      else still.push(request);
    }
    this.present = still;
  }

  private begin(request: number, kind: number, row: number): void {
    if (!this.isPresent[request]) {
      this.isPresent[request] = 1;
      this.present.push(request);
    }
    this.state[request] = kind;
    this.since[request] = row;
    this.decodes[request] = -1;
  }

  private admit(request: number, row: number, first: boolean): void {
    if (this.state[request] !== NOWHERE) this.end(request, row - 1);
    this.begin(request, SPAN_KINDS.running, row);
    const { requests } = this.source;
    const known = first && requests.lookupRow[request] >= 0 && promptOf(requests, request) !== MISSING;
    this.computed[request] = known ? hitsOf(requests, request) : -1;
    this.prefilling += 1;
  }

  /** Tokens of this row: who has finished his prompt? */
  private progress(row: number): void {
    const { scheduled } = this.source.lists;
    const count = scheduled.counts[row];
    const start = scheduled.starts[row];
    for (let i = 0; i < count; i++) {
      const request = scheduled.ids[start + i];
      if (this.state[request] !== SPAN_KINDS.running || this.decodes[request] >= 0) continue;
      const tokens = scheduled.tokens[start + i];
      if (this.computed[request] < 0) {
        if (tokens <= 1) this.decode(request, row);
        continue;
      }
      this.computed[request] += tokens;
      if (this.computed[request] >= promptOf(this.source.requests, request)) this.decode(request, row + 1);
    }
  }

  private decode(request: number, row: number): void {
    this.decodes[request] = row;
    this.prefilling -= 1;
  }

  private end(request: number, last: number): void {
    const kind = this.state[request];
    if (kind === SPAN_KINDS.running && this.decodes[request] < 0) this.prefilling -= 1;
    if (kind !== NOWHERE && last >= this.since[request]) {
      this.request.push(request);
      this.kind.push(kind);
      this.first.push(this.since[request]);
      this.last.push(last);
      this.decodeFrom.push(this.decodes[request] < 0 ? last + 1 : Math.min(this.decodes[request], last + 1));
    }
    this.state[request] = NOWHERE;
  }
}

/** Spans from the steps file alone. Fills `requests.firstRow` and `lastRow`, and times that no record has. */
export function buildSpans(source: SpanSource): Spans {
  const spans = new SpanBuilder(source).build();
  fillRows(source, spans);
  return spans;
}

function fillRows({ rows, steps, requests }: SpanSource, spans: Spans): void {
  for (let request = 0; request < requests.count; request++) {
    const from = spans.starts[request];
    const to = spans.starts[request + 1];
    if (from === to) continue;
    requests.firstRow[request] = spans.first[from];
    requests.lastRow[request] = spans.last[to - 1];
    if (requests.timesRecorded[request]) continue;
    if (Number.isNaN(requests.arrivalTime[request])) requests.arrivalTime[request] = steps.ts[spans.first[from]];
    const after = spans.last[to - 1] + 1;
    if (after < rows) requests.finishedTime[request] = steps.ts[after];
    for (let span = from; span < to; span++) {
      if (spans.kind[span] !== SPAN_KINDS.running) continue;
      if (Number.isNaN(requests.firstScheduledTime[request])) {
        requests.firstScheduledTime[request] = steps.ts[spans.first[span]];
      }
      // Where no lookup tells the length of the prompt, its end is a guess: good enough to draw, not to measure.
      const decode = spans.decodeFrom[span];
      if (decode < rows && requests.lookupRow[request] >= 0) {
        if (Number.isNaN(requests.firstTokenTime[request])) requests.firstTokenTime[request] = steps.ts[decode];
        break;
      }
    }
  }
}

/** The span of a request that covers a row, or -1. */
export function spanAt(spans: Spans, request: number, row: number): number {
  let low = spans.starts[request];
  let high = spans.starts[request + 1] - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (spans.last[middle] < row) low = middle + 1;
    else if (spans.first[middle] > row) high = middle - 1;
    else return middle;
  }
  return -1;
}

function promptOf(requests: RequestTable, request: number): number {
  const looked = requests.lookupPromptTokens[request];
  return looked === MISSING ? requests.promptTokens[request] : looked;
}

function hitsOf(requests: RequestTable, request: number): number {
  return Math.max(requests.localHitTokens[request], 0) + Math.max(requests.externalHitTokens[request], 0);
}

function groupBy(values: Int32Array, count: number): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  for (let i = 0; i < count; i++) {
    const group = groups.get(values[i]);
    if (group) group.push(i);
    else groups.set(values[i], [i]);
  }
  return groups;
}
