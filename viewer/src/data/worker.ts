/**
 * The loading worker: reads a steps file, or a part of a requests file, and hands back columns.
 *
 * A worker runs the very script of the page (entry.ts distinguishes the two), so that the page holds this code once.
 */

import { bytesOf, isParquet, openBytes } from "./bytes";
import { LineSplitter } from "./lines";
import type { TraceSource } from "./model/sources";
import type { LoadNotes } from "./model/trace";
import { endLines, newNotes } from "./notes";
import { parquetRecords } from "./parquet";
import { RecordBook, type RecordChunk } from "./recordBook";
import { buffersOf, StepsReader, type StepTables } from "./steps";

export type ToWorker =
  /** `early`: hand over the first steps while the rest is read. */
  | { type: "steps"; source: TraceSource; keep: boolean; early: boolean }
  /** Lines of a file that begin in bytes start .. end - 1; without them the whole source. */
  | { type: "requests"; source: TraceSource; part: { start: number; end: number } | null; keep: boolean }
  | { type: "append"; bytes: Uint8Array }
  | { type: "stop" };

export type FromWorker =
  | { type: "progress"; bytesRead: number; bytesTotal: number | null; records: number }
  | { type: "early" | "steps"; tables: StepTables }
  /** `bytes` of the file are taken. */
  | { type: "requests"; chunk: RecordChunk; notes: LoadNotes; bytes: number }
  | { type: "failed"; message: string };

const PROGRESS_MS = 100;
/** A steps file that takes longer to read is drawn before it is read to its end. */
const EARLY_MS = 800;

const scope = globalThis as unknown as {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
  postMessage(message: FromWorker, transfer?: Transferable[]): void;
};

let stopped = false;
let steps: StepsReader | null = null;
let requests: RequestsTail | null = null;

/** Reads a requests file on from where it ended. */
interface RequestsTail {
  path: string;
  splitter: LineSplitter;
  /** Lines go into this one: a new one for each piece. */
  book: RecordBook;
}

/** Begin to listen: this thread is a worker. */
export function serveAsWorker(): void {
  scope.onmessage = ({ data }) => {
    if (data.type === "stop") stopped = true;
    else if (data.type === "append") append(data.bytes);
    else void run(data);
  };
}

async function run(order: Extract<ToWorker, { type: "steps" | "requests" }>): Promise<void> {
  try {
    if (order.type === "steps") await readSteps(order);
    else if (order.keep) await readRequestsAndKeep(order.source);
    else await readRequests(order.source, order.part);
  } catch (error) {
    scope.postMessage({ type: "failed", message: error instanceof Error ? error.message : String(error) });
  }
}

async function readSteps({ source, keep, early }: Extract<ToWorker, { type: "steps" }>): Promise<void> {
  const reader = new StepsReader(source.path);
  if (isParquet(source.path)) {
    await parquetRecords(
      source,
      reader.notes,
      (record, line) => reader.record(record, line),
      progress,
      () => stopped,
    );
  } else {
    let due = early ? performance.now() + EARLY_MS : Number.POSITIVE_INFINITY;
    const take = (bytes: Uint8Array) => {
      reader.push(bytes);
      if (performance.now() >= due && reader.rows > 0) {
        due = Number.POSITIVE_INFINITY;
        const tables = reader.tables(true);
        scope.postMessage({ type: "early", tables }, buffersOf(tables));
      }
      return true;
    };
    await pump(source, null, take, reader.notes, () => reader.rows);
  }
  if (keep) {
    reader.splitter.forget();
    steps = reader;
  } else reader.end();
  const tables = reader.tables(keep);
  scope.postMessage({ type: "steps", tables }, buffersOf(tables));
}

function append(bytes: Uint8Array): void {
  if (requests) appendRecords(requests, (tail) => tail.splitter.push(bytes));
  if (!steps) return;
  steps.push(bytes);
  const tables = steps.tables(true);
  scope.postMessage({ type: "steps", tables }, buffersOf(tables));
}

async function readRequests(source: TraceSource, part: { start: number; end: number } | null): Promise<void> {
  const notes = newNotes();
  const book = new RecordBook(source.path, notes);
  let lines = 0;
  if (isParquet(source.path)) {
    await parquetRecords(
      source,
      notes,
      (record, line) => book.record(record, line - 1, line),
      progress,
      () => stopped,
    );
  } else {
    lines = await readPart(source, part, book, notes);
  }
  const chunk = book.chunk(lines);
  scope.postMessage({ type: "requests", chunk, notes, bytes: 0 }, buffersOf(chunk));
}

/** Read what there is; `append` goes on after it. */
async function readRequestsAndKeep(source: TraceSource): Promise<void> {
  const notes = newNotes();
  const tail: RequestsTail = {
    path: source.path,
    splitter: new LineSplitter((bytes, offset, number) => tail.book.line(bytes, offset, number)),
    book: new RecordBook(source.path, notes),
  };
  const take = (bytes: Uint8Array) => {
    tail.splitter.push(bytes);
    return true;
  };
  await pump(source, null, take, notes, () => tail.book.count);
  tail.splitter.forget();
  requests = tail;
  send(tail, notes, 0);
}

function appendRecords(tail: RequestsTail, push: (tail: RequestsTail) => void): void {
  const before = tail.splitter.number;
  const notes = newNotes();
  tail.book = new RecordBook(tail.path, notes);
  push(tail);
  send(tail, notes, before);
}

function send({ book, splitter }: RequestsTail, notes: LoadNotes, linesBefore: number): void {
  const chunk = book.chunk(splitter.number - linesBefore);
  scope.postMessage({ type: "requests", chunk, notes, bytes: splitter.offset }, buffersOf(chunk));
}

/** Lines that begin in the part; the line that was cut at its start belongs to the part before. */
async function readPart(
  source: TraceSource,
  part: { start: number; end: number } | null,
  book: RecordBook,
  notes: LoadNotes,
): Promise<number> {
  const start = part?.start ?? 0;
  const end = part?.end ?? Number.POSITIVE_INFINITY;
  // Begin one byte early: if that byte ends a line, the first line of the part is whole.
  const base = Math.max(start - 1, 0);
  let skip = start > 0;
  let skipped = 0;
  let done = false;
  const splitter = new LineSplitter((bytes, offset, number) => {
    if (skip) {
      skip = false;
      skipped = 1;
    } else if (base + offset >= end) {
      done = true;
    } else if (!done) {
      book.line(bytes, base + offset, number - skipped);
    }
  });
  const take = (bytes: Uint8Array) => {
    splitter.push(bytes);
    return !done;
  };
  await pump(source, part ? { start: base, end } : null, take, notes, () => book.count);
  if (!done) endLines(splitter, notes);
  return splitter.number - skipped;
}

/** Hand every piece of the source to `take` until it says false, or until the loading is stopped. */
async function pump(
  source: TraceSource,
  part: { start: number; end: number } | null,
  take: (bytes: Uint8Array) => boolean,
  notes: LoadNotes,
  records: () => number,
): Promise<void> {
  let bytesRead = 0;
  const whole = part === null || source.kind !== "file";
  const { stream, packed, total, taken } = whole
    ? await openBytes(source)
    : {
        ...{ stream: bytesOf(source.file.slice(part.start)), packed: false },
        ...{ total: part.end - part.start, taken: () => bytesRead },
      };
  let told = 0;
  const from = async (opened: ReadableStream<Uint8Array>, known: number) => {
    const reader = opened.getReader();
    let passed = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done || stopped) break;
        const fresh = passed + value.length <= known ? null : value.subarray(Math.max(known - passed, 0));
        passed += value.length;
        if (!fresh) continue;
        bytesRead += fresh.length;
        if (!take(fresh)) break;
        if (performance.now() - told > PROGRESS_MS) {
          told = performance.now();
          progress(taken(), total, records());
          // Let a "stop" in.
          await new Promise((resolve) => setTimeout(resolve));
        }
      }
    } finally {
      void reader.cancel().catch(() => undefined);
    }
  };
  try {
    await from(stream, 0);
  } catch (error) {
    // The browser drops what it had unpacked when it fails: unpack it again, and go on where it was dropped.
    if (packed) await from((await openBytes(source, true)).stream, bytesRead);
    if (bytesRead === 0) throw error;
    notes.cutOff = true;
    const why = packed ? "its compressed data break off or are damaged" : `reading broke off (${messageOf(error)})`;
    notes.sentences.push(`${source.path}: ${why}; what comes before is all that is shown`);
  }
  progress(taken(), total, records());
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function progress(bytesRead: number, bytesTotal: number | null, records: number): void {
  scope.postMessage({ type: "progress", bytesRead, bytesTotal, records });
}
