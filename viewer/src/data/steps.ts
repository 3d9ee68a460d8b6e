/** From the bytes of a steps file to the tables of a store. */

import { CLASSIFIER_BLOCK_SIZE, classifyRows, showRows } from "./classify";
import type { Parsed } from "./fields";
import { StepJoiner } from "./joiner";
import { LineSplitter } from "./lines";
import type { Whole } from "./model/columns";
import type { Spans } from "./model/lives";
import type { OutcomeTable } from "./model/outcomes";
import type { RequestTable } from "./model/requests";
import type { StepColumns, StepLists } from "./model/steps";
import type { LoadNotes, TraceStart } from "./model/trace";
import { endLines, newNotes } from "./notes";
import { buildSpans } from "./spans";
import { StepBook } from "./stepBook";
import { shownIndices, shownReasons } from "./wording";

/** Everything a steps file says, ready to be sent to another thread. */
export interface StepTables {
  rows: number;
  policy: string;
  steps: StepColumns;
  lists: StepLists;
  outcomes: OutcomeTable;
  reasonNames: string[];
  requests: RequestTable;
  jobIds: string[];
  finishReasons: string[];
  adapters: string[];
  tenants: string[];
  lookups: number;
  connector: string | null;
  livesRecorded: boolean;
  tellsTokens: boolean;
  spans: Spans;
  start: TraceStart | null;
  notes: LoadNotes;
  /** Lines of row r begin at `lines[lineStarts[r]] ..` up to those of the next row. */
  lineStarts: Whole;
  lines: Float64Array;
  numLines: number;
  /** Bytes taken, those of an unfinished last line included. */
  bytes: number;
}

export class StepsReader {
  readonly notes = newNotes();
  readonly splitter: LineSplitter;
  private readonly joiner: StepJoiner;
  private readonly book: StepBook;
  private ended = false;

  constructor(file: string) {
    this.book = new StepBook(this.notes);
    this.joiner = new StepJoiner(file, this.notes, (step) => {
      this.book.blockSize = this.joiner.start?.blockSize || CLASSIFIER_BLOCK_SIZE;
      this.book.everyStep = (this.joiner.start?.everyN ?? 1) === 1;
      this.book.add(step);
    });
    this.splitter = new LineSplitter((bytes, offset, number) => this.joiner.line(bytes, offset, number));
  }

  /** Steps so far, but for the last few. */
  get rows(): number {
    return this.book.rows;
  }

  push(bytes: Uint8Array): void {
    this.splitter.push(bytes);
  }

  /** Take a record that is parsed already; `line` is its number, from 1. */
  record(record: Parsed, line: number): void {
    this.joiner.record(record, line - 1, line);
  }

  /** Nothing more will come. */
  end(): void {
    if (this.ended) return;
    this.ended = true;
    endLines(this.splitter, this.notes);
    this.joiner.end();
  }

  /** The tables as of now. `copy`: the reader goes on afterwards, so the tables must not share its memory. */
  tables(copy: boolean): StepTables {
    const undo = this.book.mark();
    if (!this.ended) for (const step of this.joiner.stillOpen()) this.book.add(step);
    let tables = this.raw();
    if (copy) tables = structuredClone(tables);
    undo();
    derive(tables);
    return tables;
  }

  private raw(): StepTables {
    const { book } = this;
    return {
      rows: book.rows,
      policy: book.policy ?? "unknown",
      steps: book.steps(),
      lists: book.lists(),
      outcomes: book.outcomes.table(),
      reasonNames: book.outcomes.reasons.texts,
      requests: book.requests.table(),
      jobIds: book.requests.jobs.texts,
      finishReasons: book.requests.finishReasons.texts,
      adapters: book.requests.adapters.texts,
      tenants: book.requests.tenants.texts,
      lookups: book.requests.lookups,
      connector: book.requests.connector,
      livesRecorded: book.requests.livesRecorded,
      tellsTokens: book.tellsTokens,
      spans: emptySpans(),
      start: this.joiner.start,
      notes: this.notes,
      lineStarts: book.lineStarts.data,
      lines: book.lines.data,
      numLines: book.lines.length,
      bytes: this.splitter.offset,
    };
  }
}

function emptySpans(): Spans {
  const none = new Int32Array(1);
  return {
    starts: none,
    kind: new Uint8Array(0),
    first: none,
    last: none,
    decodeFrom: none,
    pinnedStarts: none,
    pinnedFirst: none,
    pinnedLast: none,
  };
}

/** Classify every row, choose what it is shown as, and piece the requests' lives together. */
export function derive(tables: StepTables): void {
  const { steps, outcomes, reasonNames, rows } = tables;
  classifyRows(steps, 0, rows);
  showRows(steps, outcomes, shownIndices(shownReasons(reasonNames), reasonNames), 0, rows);
  tables.spans = buildSpans({
    rows,
    steps,
    lists: tables.lists,
    requests: tables.requests,
    jobs: tables.jobIds.length,
  });
}

/** The buffers of a message, each once: for handing them over instead of copying. */
export function buffersOf(value: unknown, found = new Set<ArrayBuffer>()): ArrayBuffer[] {
  if (ArrayBuffer.isView(value)) found.add(value.buffer as ArrayBuffer);
  else if (Array.isArray(value)) {
    if (typeof value[0] === "object") for (const item of value) buffersOf(item, found);
  } else if (value !== null && typeof value === "object") {
    for (const item of Object.values(value)) buffersOf(item, found);
  }
  return [...found];
}
