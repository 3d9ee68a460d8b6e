/** What all tables of a trace are made of. */

/** "The trace does not say", in every whole-number column. Times that are missing are NaN. */
export const MISSING = -0x80000000;

/** Whole numbers: 32 bits wide until one is met that does not fit. */
export type Whole = Int32Array | Float64Array;

export type Row = number;

export type RequestIndex = number;

export type JobIndex = number;

/**
 * A list of indices per row: those of row r are `ids[starts[r]] .. ids[starts[r] + counts[r] - 1]`; `counts[r]` is
 * MISSING where the trace has no list. Equal lists of neighbouring rows share their place.
 */
export interface Lists {
  starts: Whole;
  counts: Int32Array;
  ids: Int32Array;
}

/** Rows first .. last, both included. */
export interface Range {
  first: Row;
  last: Row;
}
