/** One loaded trace. */

import type { Spans } from "./lives";
import type { OutcomeTable } from "./outcomes";
import type { ShownReason } from "./reasons";
import type { JobTable, RecordTable, RequestTable } from "./requests";
import type { StepColumns, StepLists } from "./steps";

/** `trace_start`, as far as it is understood. */
export interface TraceStart {
  ts: number | null;
  formatVersion: number | null;
  policy: string | null;
  tokenyardVersion: string | null;
  host: string | null;
  model: string | null;
  gpu: string | null;
  blockSize: number | null;
  bytesPerBlock: number | null;
  everyN: number | null;
  maxSteps: number | null;
  maxIdsPerStep: number | null;
  requestRecords: boolean | null;
  /** Unix time at which the clock of the trace showed 0. */
  clockZero: number | null;
  /** Seconds of the trace in one of the wall. */
  clockSpeed: number | null;
  /** The moment before which nothing counts in figures. */
  warmup: number | null;
  /** When the run was ended, with whatever was unfinished. */
  endedAt: number | null;
  config: unknown;
}

/** What a reader could not use: the same counts as `reading` of `tokenyard report`. */
export interface LoadNotes {
  badLines: number;
  /** The first twenty. */
  firstBadLines: { file: string; line: number; problem: string }[];
  unknownEvents: Record<string, number>;
  /** `event.field` -> values of the wrong type, treated as missing. */
  droppedFields: Record<string, number>;
  duplicateRecords: number;
  lateRecords: number;
  /** Rows whose number is not above that of the row before. */
  rowsOutOfOrder: number;
  requestRecords: number;
  unmatchedRequestRecords: number;
  /** Ids longer than 1 MiB or so, cut. */
  longTexts: number;
  /** The last line of a file is cut off, or packed data end early. */
  cutOff: boolean;
  /** Whole sentences: "the file ends in the middle of line 5,212", "compressed data is damaged after line 7". */
  sentences: string[];
}

/** One loaded trace. */
export interface TraceStore {
  /** Unique within the page. */
  readonly key: number;
  /** Raised whenever anything in the store changes: request records attached, rows added while following. */
  version: number;
  /** Short name for tabs: the run's folder or the file's name without endings. */
  name: string;
  /** Path or name of the steps file, for the header's `src`. */
  source: string;
  rows: number;
  /** Of the first step; "unknown" if the trace does not say. */
  policy: string;
  /** Row numbers rise from row to row, so that a step is found by halving. */
  ordered: boolean;
  steps: StepColumns;
  lists: StepLists;
  outcomes: OutcomeTable;
  reasonNames: string[];
  /** The trace records reasons: a step without one held no request back. */
  hasReasons: boolean;
  requests: RequestTable;
  jobs: JobTable;
  /** Null until (and unless) a requests file is read. */
  records: RecordTable | null;
  spans: Spans;
  shown: ShownReason[];
  finishReasons: string[];
  /** LoRA adapters by name; tenants by the hash of their cache salt. */
  adapters: string[];
  tenants: string[];
  /** Prefix lookups: one per request in `requests`; this counts them. */
  lookups: number;
  connector: string | null;
  start: TraceStart | null;
  notes: LoadNotes;
  /** Which files are read, and how far: drawn as "requests file: 41 %". */
  stage: "reading" | "steps" | "requests" | "complete" | "following" | "cancelled";
}
