/** Request records, put beside the steps they belong to: then every row is judged again, now that more is known. */

import { CLASSIFIER_BLOCK_SIZE, classifyRows, showRows } from "./classify";
import { MISSING, type Row } from "./model/columns";
import { RECORD_FLAGS, type RecordTable, type RequestTable } from "./model/requests";
import type { TraceStore } from "./model/trace";
import { addNotes } from "./notes";
import { RECORD_NUMBER_NAMES, type RecordChunk } from "./recordBook";
import { inSlices } from "./slices";
import { SpanRefiner } from "./spanRefiner";
import { blocksFor } from "./stepBook";
import { rememberRequest, requestOf, type StoreInside } from "./store";
import { shownIndices } from "./wording";

/** Put the parts of a requests file, in their order, beside the steps. */
export async function attachRecords(store: StoreInside, chunks: readonly RecordChunk[]): Promise<void> {
  const placed = placeGroups(store, chunks);
  const total = chunks.reduce((count, chunk) => count + chunk.count, 0);
  const records = emptyRecords(store.rows, total);
  const offsets = new Float64Array(store.rows).fill(Number.NaN);
  const requestOfChunk = chunks.map((chunk) => adoptIds(store, chunk));
  const statusOfChunk = chunks.map((chunk) => adoptStatuses(records, chunk.statuses));
  let at = 0;
  await inSlices(0, placed.length - 1, (index) => {
    const { row, parts } = placed[index];
    records.first[row] = at;
    if (parts.length === 1) offsets[row] = chunks[parts[0].chunk].groups.offset[parts[0].group];
    for (const { chunk, start, size, ts } of parts) {
      copyRecords(records, at, chunks[chunk], start, size, requestOfChunk[chunk], statusOfChunk[chunk]);
      if (Number.isNaN(store.steps.ts[row])) store.steps.ts[row] = ts;
      at += size;
    }
    records.num[row] = at - records.first[row];
  });
  records.count = at;
  await deriveFromRecords(store, records);
  store.records = records;
  store.recordOffset = offsets;
  store.version += 1;
}

function emptyRecords(rows: number, total: number): RecordTable {
  const column = () => new Int32Array(total);
  return {
    count: 0,
    first: new Int32Array(rows),
    num: new Int32Array(rows),
    request: column(),
    flags: new Uint8Array(total),
    status: new Uint8Array(total),
    statuses: [],
    promptTokens: column(),
    numTokens: column(),
    outputTokens: column(),
    computedTokens: column(),
    cachedTokens: column(),
    externalTokens: column(),
    preemptions: column(),
    blocks: column(),
  };
}

interface Part {
  chunk: number;
  group: number;
  start: number;
  size: number;
  ts: number;
}

/** Which records belong to which row: by the step's number, the nearest row on where a number stands twice. */
function placeGroups(store: StoreInside, chunks: readonly RecordChunk[]): { row: Row; parts: Part[] }[] {
  const rowsOf = new Map<number, Row[]>();
  for (let row = 0; row < store.rows; row++) {
    const number = store.steps.number[row];
    const rows = rowsOf.get(number);
    if (rows) rows.push(row);
    else rowsOf.set(number, [row]);
  }
  const byRow = new Map<Row, Part[]>();
  let last = -1;
  chunks.forEach((chunk, index) => {
    let start = 0;
    for (let group = 0; group < chunk.groups.count; group++) {
      const size = chunk.groups.size[group];
      const rows = rowsOf.get(chunk.groups.step[group]);
      const part = { chunk: index, group, start, size, ts: chunk.groups.ts[group] };
      start += size;
      if (!rows) {
        store.notes.unmatchedRequestRecords += size;
        continue;
      }
      const row = rows.length === 1 ? rows[0] : (rows.find((candidate) => candidate >= last) ?? rows[0]);
      last = row;
      const parts = byRow.get(row);
      if (parts) parts.push(part);
      else byRow.set(row, [part]);
    }
  });
  return [...byRow].map(([row, parts]) => ({ row, parts })).sort((a, b) => a.row - b.row);
}

/** Numbers of a part's requests in the store; requests that the steps file never names are added. */
function adoptIds(store: StoreInside, chunk: RecordChunk): Int32Array {
  const { requests } = store;
  const found = Int32Array.from(chunk.ids, (id) => requestOf(store, id));
  const jobs = new Map(store.jobs.ids.map((id, job) => [id, job]));
  chunk.ids.forEach((id, index) => {
    const request = found[index];
    if (request < 0) {
      found[index] = addRequest(requests, id);
      rememberRequest(requests, id, found[index]);
    }
    const job = chunk.jobs[index];
    if (job !== null && requests.job[found[index]] < 0) requests.job[found[index]] = jobs.get(job) ?? -1;
    for (const [into, from] of [
      [requests.maxTokens, chunk.maxTokens],
      [requests.priority, chunk.priority],
    ] as const) {
      if (into[found[index]] === MISSING) into[found[index]] = from[index];
    }
  });
  return found;
}

function addRequest(requests: RequestTable, id: string): number {
  const request = requests.count;
  requests.ids.push(id);
  requests.count += 1;
  for (const [name, column] of Object.entries(requests)) {
    if (!ArrayBuffer.isView(column)) continue;
    const old = column as Int32Array;
    if (old.length > request) continue;
    const larger = new (old.constructor as Int32ArrayConstructor)(request + 1 + (request >> 2));
    larger.fill(old instanceof Float64Array && /T(?:ime|s)$/.test(name) ? Number.NaN : -1);
    if (WHOLE_OF_REQUEST.has(name)) larger.fill(MISSING);
    larger.set(old);
    (requests as unknown as Record<string, unknown>)[name] = larger;
  }
  requests.timesRecorded[request] = 0;
  return request;
}

const WHOLE_OF_REQUEST = new Set([
  "promptTokens",
  "maxTokens",
  "outputTokens",
  "priority",
  "numPreemptions",
  "recomputedTokens",
  "items",
  "itemTokens",
  "localHitTokens",
  "externalHitTokens",
  "lookupPromptTokens",
  "lookupStep",
  "arrivedStep",
]);

function adoptStatuses(records: RecordTable, statuses: readonly string[]): Uint8Array {
  return Uint8Array.from(statuses, (status) => {
    let index = records.statuses.indexOf(status);
    if (index < 0 && records.statuses.length < 256) index = records.statuses.push(status) - 1;
    return Math.max(index, 0);
  });
}

function copyRecords(
  records: RecordTable,
  at: number,
  chunk: RecordChunk,
  start: number,
  size: number,
  requestOfId: Int32Array,
  statusOf: Uint8Array,
): void {
  for (let i = 0; i < size; i++) {
    records.request[at + i] = requestOfId[chunk.request[start + i]];
    records.status[at + i] = statusOf[chunk.status[start + i]];
  }
  records.flags.set(chunk.flags.subarray(start, start + size), at);
  for (const name of RECORD_NUMBER_NAMES) {
    const from = chunk.numbers[name];
    if (from instanceof Float64Array && records[name] instanceof Int32Array) {
      records[name] = Float64Array.from(records[name]);
    }
    records[name].set(from.subarray(start, start + size), at);
  }
}

/** minNeed, queue lengths that no snapshot has, exact prefill: then every row is judged again. */
async function deriveFromRecords(store: StoreInside, records: RecordTable): Promise<void> {
  const { steps, rows } = store;
  const blockSize = store.start?.blockSize || CLASSIFIER_BLOCK_SIZE;
  const indices = shownIndices(store.shown, store.reasonNames);
  const refiner = new SpanRefiner(store.spans, records);
  await inSlices(0, rows - 1, (row) => {
    const { least, running, waiting } = rowOfRecords(store.requests, records, row, blockSize);
    // The smallest request may be among those that a bound left out.
    steps.minNeed[row] = steps.waitingOmitted[row] > 0 ? MISSING : least;
    if (records.num[row] > 0) {
      if (steps.numRunning[row] === MISSING) steps.numRunning[row] = running;
      if (steps.numWaiting[row] === MISSING) steps.numWaiting[row] = waiting;
    }
    refiner.row(row);
    classifyRows(steps, row, row + 1);
    showRows(steps, store.outcomes, indices, row, row + 1);
  });
}

/** Least blocks that admit any one waiting request: its prompt less its cached tokens; and the queues' lengths. */
function rowOfRecords(requests: RequestTable, records: RecordTable, row: Row, blockSize: number) {
  const end = records.first[row] + records.num[row];
  let least = MISSING;
  let running = 0;
  let waiting = 0;
  for (let record = records.first[row]; record < end; record++) {
    const prompt = records.promptTokens[record];
    const request = records.request[record];
    if (requests.promptTokens[request] === MISSING) requests.promptTokens[request] = prompt;
    if (records.flags[record] & RECORD_FLAGS.running) running += 1;
    if ((records.flags[record] & RECORD_FLAGS.waiting) === 0) continue;
    waiting += 1;
    if (prompt === MISSING) continue;
    const need = blocksFor(prompt - Math.max(records.cachedTokens[record], 0), blockSize);
    if (least === MISSING || need < least) least = need;
  }
  return { least, running, waiting };
}

/** Add what the readers of a requests file noted. */
export function addRecordNotes(
  store: TraceStore,
  notes: readonly { notes: StoreInside["notes"]; lines: number }[],
): void {
  let lines = 0;
  for (const part of notes) {
    addNotes(store.notes, part.notes, lines);
    lines += part.lines;
  }
}
