/** The store: the tables of a steps file, and how to find a row or a request in it. */

import { IndexColumn } from "./columns";
import { grouped } from "./lists";
import type { Row, Whole } from "./model/columns";
import type { RequestTable } from "./model/requests";
import type { TraceStore } from "./model/trace";
import type { StepTables } from "./steps";
import { shownReasons } from "./wording";

/** What the data functions know of a store beyond its contract. */
export interface StoreInside extends TraceStore {
  lineStarts: Whole;
  lines: Float64Array;
  numLines: number;
  livesRecorded: boolean;
  /** An open request without a first token is known to have none. */
  tellsTokens: boolean;
  /** Where the records of each row begin in the requests file; NaN: nowhere, or in several places. */
  recordOffset: Float64Array | null;
  /** Bytes of the steps file taken. */
  bytes: number;
}

let lastKey = 0;

/** A store from the tables of a steps file. */
export function storeOf(tables: StepTables, name: string, source: string): StoreInside {
  lastKey += 1;
  const store = { key: lastKey, version: 0, name, source, stage: "steps" } as StoreInside;
  adopt(store, tables);
  return store;
}

/** Take the tables of a longer state of the same file. */
export function adopt(store: StoreInside, tables: StepTables): void {
  const { requests, jobIds } = tables;
  Object.assign(store, {
    version: store.version + 1,
    rows: tables.rows,
    policy: tables.policy,
    ordered: tables.notes.rowsOutOfOrder === 0,
    steps: tables.steps,
    lists: tables.lists,
    outcomes: tables.outcomes,
    reasonNames: tables.reasonNames,
    hasReasons: tables.outcomes.count > 0 || tables.start !== null,
    requests,
    jobs: { count: jobIds.length, ids: jobIds, requests: requestsOfJobs(requests, jobIds.length) },
    records: null,
    spans: tables.spans,
    shown: shownReasons(tables.reasonNames),
    finishReasons: tables.finishReasons,
    adapters: tables.adapters,
    tenants: tables.tenants,
    lookups: tables.lookups,
    connector: tables.connector,
    start: tables.start,
    notes: tables.notes,
    lineStarts: tables.lineStarts,
    lines: tables.lines,
    numLines: tables.numLines,
    livesRecorded: tables.livesRecorded,
    tellsTokens: tables.tellsTokens,
    recordOffset: null,
    bytes: tables.bytes,
  } satisfies Partial<StoreInside>);
}

function requestsOfJobs(requests: RequestTable, jobs: number) {
  const withJob = new IndexColumn();
  const of = new IndexColumn();
  const order = Array.from({ length: requests.count }, (_, request) => request);
  const moment = (request: number) =>
    Number.isNaN(requests.arrivalTime[request]) ? Number.POSITIVE_INFINITY : requests.arrivalTime[request];
  // Ids are counted on in the order in which they are met, which is mostly that of arrival.
  if (order.some((request) => request > 0 && moment(request) < moment(request - 1))) {
    order.sort((a, b) => (moment(a) === moment(b) ? a - b : moment(a) < moment(b) ? -1 : 1));
  }
  for (const request of order) {
    if (requests.job[request] < 0) continue;
    withJob.push(requests.job[request]);
    of.push(request);
  }
  const { starts, order: places } = grouped(withJob.data, withJob.length, jobs);
  const counts = new Int32Array(jobs);
  for (let job = 0; job < jobs; job++) counts[job] = starts[job + 1] - starts[job];
  return { starts: starts.subarray(0, jobs), counts, ids: Int32Array.from(places, (place) => of.data[place]) };
}

/** The row of a step number, or the nearest one; -1 in an empty trace. */
export function rowOfStep(store: TraceStore, step: number): Row {
  const { number } = store.steps;
  if (store.rows === 0) return -1;
  if (store.ordered) {
    let low = 0;
    let high = store.rows - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (number[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low > 0 && step - number[low - 1] < Math.abs(number[low] - step) ? low - 1 : low;
  }
  let nearest = 0;
  for (let row = 0; row < store.rows; row++) {
    if (number[row] === step) return row;
    if (Math.abs(number[row] - step) < Math.abs(number[nearest] - step)) nearest = row;
  }
  return nearest;
}

/** The last row that began at or before `ts`; 0 if none did. */
export function rowAtTime(store: TraceStore, ts: number): Row {
  let low = 0;
  let high = store.rows - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (store.steps.ts[middle] <= ts) low = middle;
    else high = middle - 1;
  }
  return Math.max(low, 0);
}

const indexOfId = new WeakMap<RequestTable, Map<string, number>>();

/** The request of an id, or -1. */
export function requestOf(store: TraceStore, id: string): number {
  let index = indexOfId.get(store.requests);
  if (!index) {
    index = new Map(store.requests.ids.map((text, request) => [text, request]));
    indexOfId.set(store.requests, index);
  }
  return index.get(id) ?? -1;
}

/** Note a request that was added to the table. */
export function rememberRequest(requests: RequestTable, id: string, request: number): void {
  indexOfId.get(requests)?.set(id, request);
}
