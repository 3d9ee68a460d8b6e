/** Where a request's waiting time went. */

import type { PLACES, WAIT_STATES } from "../../generated/vocabulary";
import type { RequestIndex, Row } from "./columns";
import type { ReasonFamily } from "./reasons";

/** How a reason met a request: it was refused itself, stood behind the one that was, or all were held back alike; the
 * classifier's guess; or no decision held it back, or none is recorded. */
export type WaitingPlace = keyof typeof PLACES;

export type WaitState = keyof typeof WAIT_STATES;

/** Where a request's waiting time went: `tokenyard why`, by the rule of docs/reasons.md. `parts` sum to `us` exactly. */
export interface WaitingSplit {
  request: RequestIndex;
  /** Queued (arrival to first schedule), preempted (until it resumes) and stalled (running, no tokens), together. */
  us: number;
  seconds: number;
  byState: Record<WaitState, number>;
  /** Each once, also where parts share one. */
  steps: number;
  arrivedUs: number | null;
  firstScheduledUs: number | null;
  /** Its end, or the last moment of the trace. */
  untilUs: number;
  /** Most time first. */
  parts: WaitingPart[];
  /** In order of time: neighbouring steps that held it for the same reason. */
  spans: WaitingSpan[];
  /** The trace records no arrivals and ends: moments are exact to a step. */
  reconstructed: boolean;
}

export interface WaitingSpan {
  state: WaitState;
  reason: string;
  place: WaitingPlace;
  /** The request at the head of the queue that was refused, if it stood behind one. */
  head: RequestIndex | null;
  firstRow: Row;
  lastRow: Row;
  startUs: number;
  endUs: number;
}

export interface WaitingPart {
  /** Recorded reason; or the reconstructed one if `recorded` is false; or `before_step` for time until the next step. */
  reason: string;
  recorded: boolean;
  place: WaitingPlace;
  family: ReasonFamily;
  meaning: string;
  us: number;
  seconds: number;
  steps: number;
  /** The first and the last of the rows behind it. */
  firstRow: Row;
  lastRow: Row;
}
