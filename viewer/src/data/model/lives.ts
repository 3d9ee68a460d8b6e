/** Where every request was: spans, phases, lanes. */

import type { PHASES } from "../../generated/vocabulary";
import type { JobIndex, RequestIndex, Row } from "./columns";

/**
 * Where every request was, row by row: spans in order of time, those of request q from `starts[q]` to `starts[q + 1] - 1`.
 * Built with the steps; `decodeFrom` becomes exact once request records are attached.
 */
export interface Spans {
  starts: Int32Array;
  /** Of SPAN_KINDS. */
  kind: Uint8Array;
  first: Int32Array;
  last: Int32Array;
  /** Of a running span: the first row that decodes; last + 1 if none does. */
  decodeFrom: Int32Array;
  /** Pinned jobs: spans of job j from `pinnedStarts[j]` to `pinnedStarts[j + 1] - 1`. */
  pinnedStarts: Int32Array;
  pinnedFirst: Int32Array;
  pinnedLast: Int32Array;
}

export const SPAN_KINDS = { queued: 0, preempted: 1, running: 2 } as const;

export type PhaseKind = keyof typeof PHASES;

/** Rows first .. last (inclusive) and seconds begin .. end (NaN if the trace has no times). */
export interface Phase {
  kind: PhaseKind;
  first: Row;
  last: Row;
  begin: number;
  end: number;
}

export interface RequestLife {
  request: RequestIndex;
  phases: Phase[];
  /** The trace ends, or begins, in the middle of it. */
  unfinished: boolean;
}

/** One lane of the Requests view. */
export interface JobLane {
  /** -1: requests of no job, one lane each. */
  job: JobIndex;
  label: string;
  turns: RequestLife[];
  /** Spans in which its blocks are pinned: between turns, mostly. */
  pinned: { first: Row; last: Row; begin: number; end: number }[];
  waited: number;
  begin: number;
  end: number;
}

/** All lanes, in order of first arrival; columns, since there may be a million. */
export interface Lanes {
  /** `version` of the store when they were built. */
  version: number;
  count: number;
  /** Job of each lane, or -1: then it is the lane of the one request in `request`. */
  job: Int32Array;
  request: Int32Array;
  begin: Float64Array;
  end: Float64Array;
  /** Seconds that its requests waited, added up (arrival to first schedule, and preempted). */
  waited: Float64Array;
  firstRow: Int32Array;
  lastRow: Int32Array;
  /** The objects of one lane, made on request: cheap enough for the visible ones of every frame. */
  lane(index: number): JobLane;
}
