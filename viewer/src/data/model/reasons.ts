/** Buckets, reasons, and what a step can be shown as: the names of src/tokenyard/vocabulary. */

import {
  BUCKETS as BUCKET_TABLE,
  type FAMILIES,
  type REASONS,
  STEP_REASONS as STEP_TABLE,
} from "../../generated/vocabulary";

export const NO_REASON = 255;

export type Bucket = keyof typeof BUCKET_TABLE;

/** The ten buckets, in the order of the classifier's enumeration. */
export const BUCKETS = Object.keys(BUCKET_TABLE) as Bucket[];

export type StepReason = keyof typeof STEP_TABLE;

/** The ten reasons of a blocked step, in order of priority. */
export const STEP_REASONS = Object.keys(STEP_TABLE) as StepReason[];

/** A reason that the scheduler records; a trace may hold others. */
export type Reason = keyof typeof REASONS;

/** Few colours: every bucket and every recorded reason belongs to one family. */
export type ReasonFamily = keyof typeof FAMILIES;

/** One thing a step can be shown as. */
export interface ShownReason {
  /** `kv_blocks` (recorded), `kv-after-run` (reconstructed) or `under-capacity` (no request was held back). No name twice. */
  name: string;
  recorded: boolean;
  /** A request was held back. */
  blocked: boolean;
  family: ReasonFamily;
  /** One sentence. */
  meaning: string;
}
