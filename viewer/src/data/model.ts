/**
 * The contract between the data of a trace and the views.
 *
 * Everything here is plain data; `Data`, at the end, lists the functions that work on it (`data/index.ts` exports them
 * under these names). No DOM, no signals.
 *
 * Terms. A *row* is the position of a step in the trace (0 .. rows - 1), in the order of the file; its *number* is what
 * the trace calls it. A *request* and a *job* are positions in `RequestTable` and `JobTable`. Times are seconds on the
 * clock of the scheduler. All columns of a table have at least as many places as the table has rows, perhaps more: count
 * with `rows` or `count`, never with `.length`. Columns are replaced when they grow: read them from the store each time.
 */

/** "The trace does not say", in every whole-number column. Times that are missing are NaN. */
export const MISSING = -0x80000000;

/** Whole numbers: 32 bits wide until one is met that does not fit. */
export type Whole = Int32Array | Float64Array;
export type Row = number;
export type RequestIndex = number;
export type JobIndex = number;

// ------------------------------------------------------------------------------------------------------------- steps

/** One number per row. Names are those of docs/trace-format.md unless a comment says more. */
export interface StepColumns {
  number: Whole;
  /** Of the snapshot, else of the decision, else of the first request record. NaN if unknown. */
  ts: Float64Array;
  freeBlocks: Whole;
  totalBlocks: Whole;
  /** Before the step, as everything up to `skippedWaiting`. */
  numRunning: Whole;
  numWaiting: Whole;
  numPinned: Whole;
  pinnedBlocks: Whole;
  cpuFreeBlocks: Whole;
  cpuTotalBlocks: Whole;
  tokenBudget: Whole;
  maxRunning: Whole;
  gpuCachedBlocks: Whole;
  skippedWaiting: Whole;
  runningOmitted: Whole;
  waitingOmitted: Whole;
  /** Lengths of the decision's lists, ids left out included. */
  numNew: Whole;
  numResumed: Whole;
  numPreempted: Whole;
  tokenSum: Whole;
  recomputedTokens: Whole;
  /** `runningConsumed` of the classifier, in blocks. */
  runningConsumed: Whole;
  /** `minNeed` of the classifier, in blocks; known once request records are attached. */
  minNeed: Whole;
  /** Seconds from snapshot to completion, and when it completed. NaN if unknown. */
  stepSeconds: Float64Array;
  completedTs: Float64Array;
  sampledTokens: Whole;
  /** Row in `OutcomeTable`, or -1. */
  outcome: Int32Array;
  // ---- derived
  /** Index into `BUCKETS`. */
  bucket: Uint8Array;
  /** Index into `STEP_REASONS`, or NO_REASON. */
  stepReason: Uint8Array;
  /** Waiting requests that were not admitted; MISSING if unknown. */
  unadmitted: Whole;
  /** Free blocks less `runningConsumed`. */
  effectiveFree: Whole;
  /**
   * What the step is coloured and filtered by: index into `TraceStore.shown`. The recorded reason where one was recorded
   * and held somebody back; else the classifier's fine reason if somebody waited; else the bucket.
   */
  shown: Uint8Array;
}

export const NO_REASON = 255;

/** The ten buckets, in the order of the classifier's enumeration. */
export const BUCKETS = [
  "tok-budget",
  "kv-exhausted",
  "max-seqs",
  "alloc-frag",
  "alloc-exhausted",
  "kv-tight",
  "admitted-all",
  "under-capacity",
  "idle",
  "unknown",
] as const;
export type Bucket = (typeof BUCKETS)[number];

/** The ten reasons of a blocked step, in order of priority. */
export const STEP_REASONS = [
  "tok-budget",
  "kv-after-run",
  "kv-insuf",
  "kv-low",
  "max-seqs",
  "kv-tight-after-run",
  "alloc-exhausted",
  "alloc-rejected",
  "kv-marginal",
  "unknown",
] as const;
export type StepReason = (typeof STEP_REASONS)[number];

/** Few colours: every bucket and every recorded reason belongs to one family. */
export type ReasonFamily =
  | "tokens" // the step's token budget
  | "memory" // KV blocks
  | "sequences" // max_num_seqs
  | "order" // alloc-frag and others: refused though room is left
  | "preempted" // somebody had just lost his blocks
  | "dependency" // waits for something outside: grammar, remote KV, encoder, LoRA slot, input
  | "healthy" // everybody got in, or nobody waited
  | "idle"
  | "unknown";

/** One thing a step can be shown as. */
export interface ShownReason {
  /** `kv_blocks` (recorded), `kv-after-run` (reconstructed) or `under-capacity` (nobody was held back). No name twice. */
  name: string;
  recorded: boolean;
  /** Somebody was held back. */
  blocked: boolean;
  family: ReasonFamily;
  /** One sentence. */
  meaning: string;
}

/**
 * A list of indices per row: those of row r are `ids[starts[r]] .. ids[starts[r] + counts[r] - 1]`; `counts[r]` is
 * MISSING where the trace has no list. Equal lists of neighbouring rows share their place.
 */
export interface Lists {
  starts: Whole;
  counts: Int32Array;
  ids: Int32Array;
}

export interface StepLists {
  /** Requests, in the order of the trace. */
  running: Lists;
  waiting: Lists;
  scheduledNew: Lists;
  scheduledResumed: Lists;
  scheduledRunning: Lists;
  preempted: Lists;
  /** Jobs. */
  pinnedJobs: Lists;
  /** `num_scheduled_tokens`: requests, and beside them their tokens. */
  scheduled: Lists & { tokens: Whole };
}

/** `admission_outcome` records, by `steps.outcome[row]`, as columns: a blocked run has one per step. */
export interface OutcomeTable {
  count: number;
  row: Int32Array;
  /** Index into `kinds`, or -1. */
  kind: Int32Array;
  /** Index into `TraceStore.reasonNames`, or -1. */
  reason: Int32Array;
  /** The reason that held back most of the waiting requests, skipped ones included; -1 if none. */
  mainReason: Int32Array;
  /** Waiting requests that were held back or skipped. */
  held: Whole;
  request: Int32Array;
  numRequests: Whole;
  /** KV numbers in blocks; `limit` is an index into `limits`, or -1. */
  limit: Int32Array;
  needed: Whole;
  free: Whole;
  cachedHits: Whole;
  reserved: Whole;
  watermark: Whole;
  pinned: Whole;
  smallestNeed: Whole;
  wantedTokens: Whole;
  budgetLeft: Whole;
  /** Per outcome: reasons (indices into `reasonNames`) and how many requests each held back, skipped and running ones
   * that got no tokens included. */
  byReason: Lists & { requests: Whole };
  /** The lists of an outcome as JSON, or "": read them with `Data.outcome`. */
  rest: string[];
  kinds: string[];
  limits: string[];
}

/** One `admission_outcome` with its lists. */
export interface Outcome {
  row: Row;
  kind: string | null;
  reason: string | null;
  request: RequestIndex | null;
  numRequests: number | null;
  kv: KVNumbers | null;
  smallestNeed: number | null;
  wantedTokens: number | null;
  budgetLeft: number | null;
  skippedCounts: Record<string, number> | null;
  skipped: Refusal[];
  skippedOmitted: number;
  notScheduledCounts: Record<string, number> | null;
  notScheduled: Refusal[];
  notScheduledOmitted: number;
  preemptions: Preemption[];
}

export interface KVNumbers {
  limit: string | null;
  needed: number | null;
  free: number | null;
  cachedHits: number | null;
  reserved: number | null;
  watermark: number | null;
  pinned: number | null;
}

export interface Refusal {
  reason: string;
  request: RequestIndex | null;
  wantedTokens: number | null;
  budgetLeft: number | null;
  kv: KVNumbers | null;
}

export interface Preemption {
  request: RequestIndex;
  forRequest: RequestIndex | null;
  numComputedTokens: number | null;
  rolledBackTokens: number | null;
  kv: KVNumbers | null;
}

// ---------------------------------------------------------------------------------------------------------- requests

/** What is known of each request for good. Times NaN, numbers MISSING where unknown. */
export interface RequestTable {
  count: number;
  /** Ids as in the trace: hostile text. Use `shortId` of data/labels.ts to show one. */
  ids: string[];
  /** Job, or -1. */
  job: Int32Array;
  /** From `request_arrived`, else from when it is first seen. */
  arrivalTime: Float64Array;
  firstScheduledTime: Float64Array;
  firstTokenTime: Float64Array;
  finishedTime: Float64Array;
  /** True for each of the times above if `request_arrived` / `request_finished` said it, not the queues. */
  timesRecorded: Uint8Array;
  /** The first and the last row at which it is in a queue, as far as the trace shows; -1 if it never is. */
  firstRow: Int32Array;
  lastRow: Int32Array;
  /** The row before which `request_arrived` stands, and the row after which `request_finished` does; -1 if unknown. */
  arrivedRow: Int32Array;
  finishedRow: Int32Array;
  /** Step that `request_arrived` names: the next one to run, which a sampled trace may not hold. */
  arrivedStep: Whole;
  promptTokens: Whole;
  maxTokens: Whole;
  outputTokens: Whole;
  priority: Whole;
  numPreemptions: Whole;
  recomputedTokens: Whole;
  /** Index into `TraceStore.finishReasons`, or -1. */
  finishReason: Int32Array;
  /** Its prefix_cache_lookup: the row, hits and prompt length; row -1 if there is none. */
  lookupRow: Int32Array;
  lookupStep: Whole;
  lookupTs: Float64Array;
  localHitTokens: Whole;
  externalHitTokens: Whole;
  lookupPromptTokens: Whole;
}

export interface JobTable {
  count: number;
  ids: string[];
  /** Requests of each job in order of arrival. */
  requests: Lists;
}

/** Per-request records (the requests file); row r has `first[r] .. first[r] + num[r] - 1`. */
export interface RecordTable {
  count: number;
  first: Int32Array;
  num: Int32Array;
  request: Int32Array;
  /** Bits of RECORD_FLAGS. */
  flags: Uint8Array;
  /** Index into `statuses`. */
  status: Uint8Array;
  statuses: string[];
  promptTokens: Whole;
  numTokens: Whole;
  outputTokens: Whole;
  computedTokens: Whole;
  cachedTokens: Whole;
  externalTokens: Whole;
  preemptions: Whole;
  /** Blocks it holds; MISSING in traces of other emitters. */
  blocks: Whole;
}

export const RECORD_FLAGS = { running: 1, waiting: 2, prefillChunk: 4, resumable: 8 } as const;

// -------------------------------------------------------------------------------------------------------- the trace

/** `trace_start`, as far as it is understood. */
export interface TraceStart {
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
  /** The trace records reasons: a step without one held nobody back. */
  hasReasons: boolean;
  requests: RequestTable;
  jobs: JobTable;
  /** Null until (and unless) a requests file is read. */
  records: RecordTable | null;
  spans: Spans;
  shown: ShownReason[];
  finishReasons: string[];
  /** Prefix lookups: one per request in `requests`; this counts them. */
  lookups: number;
  connector: string | null;
  start: TraceStart | null;
  notes: LoadNotes;
  /** Which files are read, and how far: drawn as "requests file: 41 %". */
  stage: "steps" | "requests" | "complete" | "following" | "cancelled";
}

// ---------------------------------------------------------------------------------------------------------- loading

export type TraceSource =
  | { kind: "file"; file: File; path: string }
  /** `/api/file?path=...`: same origin only. */
  | { kind: "url"; url: string; path: string; bytes: number | null }
  /** Bytes inside this page (see data/embedded.ts). */
  | { kind: "bytes"; bytes: Uint8Array; path: string };

/** Files that belong together. Either may be missing, not both. */
export interface TraceFiles {
  name: string;
  steps: TraceSource | null;
  requests: TraceSource | null;
}

export interface LoadProgress {
  file: "steps" | "requests";
  bytesRead: number;
  /** Null if not known (a compressed stream): then only bytesRead is shown. */
  bytesTotal: number | null;
  /** Steps or request records so far. */
  records: number;
}

export interface LoadCallbacks {
  /** At most some ten times a second. */
  progress?(progress: LoadProgress): void;
  /** The steps file is read: draw. Called once; while following, `changed` tells of further rows. */
  steps?(store: TraceStore): void;
  /** Request records are attached, or rows were added. */
  changed?(store: TraceStore): void;
}

export interface LoadOptions {
  /** Read the requests file too (default true). */
  requests?: boolean;
  /** Keep the steps file's parser, so that `follower` can go on where the file ended. */
  follow?: boolean;
}

/** Adds to a trace that is still being written. */
export interface Follower {
  /** Bytes of the steps file taken so far: where to go on reading. */
  readonly offset: number;
  /** Hand over what follows, cut anywhere; resolves when the store has grown (`version` rises, `changed` is called). */
  append(bytes: Uint8Array): Promise<void>;
  /** Give the parser up. A file that was replaced is loaded anew instead. */
  close(): void;
}

export interface Loading {
  /** Resolves when everything is read; rejects with LoadError. After `cancel()` it resolves with what was read so far, if
   * that is at least one step, else it rejects with a LoadError whose `cancelled` is true. */
  readonly done: Promise<TraceStore>;
  cancel(): void;
}

/** What the error page shows. */
export interface LoadFailure {
  title: string;
  detail: string;
  /** What to do next. */
  advice: string;
  cancelled: boolean;
}

/** `data-name`, `data-steps-name` and `data-requests-name` of the script tag that holds a trace. */
export interface EmbeddedNames {
  name: string;
  steps: string;
  requests?: string | null;
}

/** One row of GET /api/traces; document 000's fields and ours. */
export interface TraceListing {
  name: string;
  date: string;
  gpu: string;
  stepsMb: number | null;
  requestsMb: number | null;
  files: TraceFiles;
}

// ------------------------------------------------------------------------------------------------------ step by step

/** Verdict of the classifier at one row, with its numbers. */
export interface Verdict {
  bucket: Bucket;
  reason: StepReason | null;
  unadmitted: number | null;
  effectiveFree: number | null;
  minNeed: number | null;
  /** Text of the dark-red badge: `16 blocked: alloc-rejected(free=533, allocator refused—hash/frag)`. Null: no badge. */
  badge: string | null;
}

/** The recorded reason at one row, put into words. */
export interface RecordedReason {
  outcome: Outcome;
  /** The reason that held back most of the waiting; null if the outcome tells only of running requests. */
  reason: string | null;
  held: number;
  family: ReasonFamily;
  meaning: string;
  /** `needed 700 blocks, free 533, of it 0 cached hits; smallest needs 347`. */
  numbers: string;
  /** Does the classifier's bucket say the same? Null if they cannot be compared. */
  agrees: boolean | null;
}

export type PillKind = "running" | "new" | "resumed" | "preempted" | "skipped-run" | "waiting";

/** One request at one step. `pinned` and `prefill` overlay the kind: eight categories in all. */
export interface Pill {
  request: RequestIndex;
  kind: PillKind;
  pinned: boolean;
  prefill: boolean;
  /** Exactly as document 000: `j0008, t9 (3) [385, fwd:1542t, 1542t left] hit:5/481(1%)`. */
  label: string;
  /** For narrow places: `0008.9`. */
  short: string;
  /** The recorded reason why it got nothing, if the trace names this very request. */
  reason: string | null;
}

export interface Pills {
  /** Running list in its order (running, skipped-run, preempted), then new, then resumed. */
  running: Pill[];
  /** Waiting and not admitted, in queue order. */
  waiting: Pill[];
  /** Ids left out of the trace by its bound. */
  runningOmitted: number;
  waitingOmitted: number;
}

/** A badge of the third column. */
export interface Badge {
  kind: "count" | "pinned" | "tokens" | "cached" | "vram" | "dram" | "blocked" | "recorded" | "recomputed";
  label: string;
  title: string;
  /** Tokens at or above 90 % of the budget. */
  hot?: boolean;
}

/** Everything known of one request at one row, as label and value, unknown fields of the trace included. */
export interface Detail {
  name: string;
  value: string;
  /** From which record: "snapshot", "decision", "request record", "lookup", "derived". */
  from: string;
}

// -------------------------------------------------------------------------------------------------------- statistics

/** Rows first .. last, both included. */
export interface Range {
  first: Row;
  last: Row;
}

export interface Spread {
  mean: number;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  max: number;
}

export interface ReasonTotals {
  reason: string;
  family: ReasonFamily;
  steps: number;
  /** Requests held back, added over the steps. */
  requests: number;
  /** Request-seconds lost. */
  seconds: number;
  kv: {
    needed: number;
    free: number;
    cachedHits: number;
    reserved: number;
    watermark: number;
    smallestNeed: number | null;
    smallerWouldFitSteps: number;
  } | null;
}

export interface Histogram {
  /** Counts per bin. */
  counts: number[];
  /** Mean of the shares, 0 .. 1; null if nothing was measured. */
  mean: number | null;
}

/** Everything that the Statistics tab shows; `range` is what it covers. */
export interface Statistics {
  range: Range;
  steps: number;
  seconds: number | null;
  /** Steps per bucket, in the order of BUCKETS, and per reason, in the order of STEP_REASONS. */
  buckets: number[];
  reasons: number[];
  /** Most time lost first; empty if the trace records none. */
  recorded: ReasonTotals[];
  /** Request-seconds between arrivals in the range and the first step that could see them; null if not known. */
  unseenSeconds: number | null;
  agreement: {
    compared: number;
    disagreeing: number;
    pairs: { bucket: Bucket; recorded: string; steps: number; agrees: boolean }[];
  } | null;
  /** Twenty bins of tokenSum / budget (a full budget is in the last), and a typical budget for the second scale. */
  tokenBudget: Histogram & { budget: number | null };
  /** Ten bins of hit / prompt over the lookups in the range, and the tokens behind them. */
  prefixHits: Histogram & {
    lookups: number;
    lookupsWithHit: number;
    promptTokens: number;
    localTokens: number;
    externalTokens: number;
    /** Per bin: tokens found locally, tokens found by a connector. */
    localByBin: number[];
    externalByBin: number[];
  };
  running: Spread | null;
  waiting: Spread | null;
  /** 0 .. 1. */
  peakKvUse: number | null;
  preemptions: number | null;
  recomputedTokens: number | null;
  sampledTokens: number | null;
  /** Requests that finished in the range, and how long they took, in seconds. */
  finished: number;
  /** Sampled in the range if the trace says it, else of the requests that finished in it. */
  outputTokens: number | null;
  requestsPerSecond: number | null;
  tokensPerSecond: number | null;
  queueSeconds: Spread | null;
  ttftSeconds: Spread | null;
  tpotSeconds: Spread | null;
  e2eSeconds: Spread | null;
  /** Ready to copy: label and value, the headline figures of document 000 first. */
  headline: { label: string; value: string }[];
}

// --------------------------------------------------------------------------------------------------- levels of detail

export type SeriesName =
  | "freeBlocks"
  | "usedBlocks"
  | "pinnedBlocks"
  | "cpuUsedBlocks"
  | "numRunning"
  | "numWaiting"
  | "tokenSum"
  | "unadmitted";

/** One level: bin b covers rows b * 2^k .. (b + 1) * 2^k - 1. Bins in which nothing is known hold NaN. */
export interface Level {
  k: number;
  bins: number;
  min: Record<SeriesName, Float32Array>;
  max: Record<SeriesName, Float32Array>;
  sum: Record<SeriesName, Float64Array>;
  /** Rows with a value, per bin. */
  known: Record<SeriesName, Uint32Array>;
  /** Index into `TraceStore.shown` that most rows of the bin have; ties go to the blocked one. */
  dominant: Uint8Array;
  /** Index of the blocked reason that most rows have, or NO_REASON: so that rare trouble can be marked. */
  blocked: Uint8Array;
  /** Share of blocked rows, 0 .. 1. */
  blockedShare: Float32Array;
}

export interface LevelsOfDetail {
  /** `version` of the store when they were built. */
  version: number;
  /** levels[k]; level 0 is not stored (read the columns). */
  levels: (Level | null)[];
  /** The coarsest level whose bins are at most `rowsPerPixel` rows wide; null: use the rows themselves. */
  pick(rowsPerPixel: number): Level | null;
}

// -------------------------------------------------------------------------------------------------------------- lives

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

export type PhaseKind = "queued" | "prefill" | "decode" | "preempted";

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
  /** The objects of one lane, made when asked for: cheap enough for the visible ones of every frame. */
  lane(index: number): JobLane;
}

/** How a reason met a request: it was refused itself, stood behind the one that was, or all were held back alike; the
 * classifier's guess; or no decision held it back, or none is recorded. */
export type WaitingPlace = "own" | "behind" | "all" | "guess" | "outside";

export type WaitState = "queued" | "preempted" | "stalled";

/** Where a request's waiting time went: `tokenyard why`, by the rule of docs/reasons.md. `parts` sum to `us` exactly. */
export interface WaitingSplit {
  request: RequestIndex;
  /** Queued (arrival to first schedule), preempted (until it resumes) and stalled (running, no tokens), together. */
  us: number;
  seconds: number;
  byState: Record<WaitState, number>;
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

// ------------------------------------------------------------------------------------------------------------ compare

export type Alignment = "step" | "time" | "job";

export interface Comparison {
  /** The first step at which they part, aligned by step; null if they never do. */
  parting: { rowA: Row; rowB: Row; what: string; detail: string } | null;
  /** Every figure that both have. */
  figures: { label: string; unit: string; a: number | null; b: number | null; lessIsBetter: boolean | null }[];
  buckets: { name: string; family: ReasonFamily; recorded: boolean; a: number; b: number }[];
  /** Jobs of either, the largest difference first. */
  jobs: {
    id: string;
    a: { begin: number; end: number; waited: number } | null;
    b: { begin: number; end: number; waited: number } | null;
  }[];
  /** The row of B that stands beside a row of A, and the other way round; -1 if there is none. */
  rowInB(rowA: Row, alignment: Alignment): Row;
  rowInA(rowB: Row, alignment: Alignment): Row;
}

// ------------------------------------------------------------------------------------------------------------- header

export interface HeaderToken {
  kind:
    | "policy"
    | "gpu"
    | "model"
    | "kv"
    | "dram"
    | "jobs"
    | "steps"
    | "seconds"
    | "max-running"
    | "requests"
    | "source";
  text: string;
  /** Where it comes from, and what was assumed. */
  title: string;
}

// ------------------------------------------------------------------------------------------------------ the functions

/** What `data/index.ts` exports. Those that give a promise work in slices: none blocks longer than some 20 ms. */
export interface Data {
  // ---- loading
  /** Sort dropped or picked files into traces, by content where names do not tell. Files that are no trace: `rejected`. */
  detect(files: readonly File[]): Promise<{ traces: TraceFiles[]; rejected: { name: string; why: string }[] }>;
  load(files: TraceFiles, callbacks?: LoadCallbacks, options?: LoadOptions): Loading;
  /** Of a store that was loaded with `follow`, once `done` resolved. */
  follower(store: TraceStore): Follower;
  /** The failure behind whatever `Loading.done` rejected with. */
  failure(error: unknown): LoadFailure;
  /** The trace inside this page: given the text of its inert script tag (id EMBEDDED_ID) and the names in its `data-`. */
  embedded(base64: string, names: EmbeddedNames): Promise<TraceFiles>;
  /** Rows of GET /api/traces, whatever their shape; what is no trace is left out. */
  listings(json: unknown): TraceListing[];
  // ---- rows
  /** The row of a step number, or the nearest one if there is none of that number; -1 in an empty trace. */
  rowOfStep(store: TraceStore, step: number): Row;
  /** The last row that began at or before `ts`; 0 if none did. */
  rowAtTime(store: TraceStore, ts: number): Row;
  verdict(store: TraceStore, row: Row): Verdict;
  outcome(store: TraceStore, row: Row): Outcome | null;
  recorded(store: TraceStore, row: Row): RecordedReason | null;
  pills(store: TraceStore, row: Row): Pills;
  badges(store: TraceStore, row: Row): Badge[];
  /** Next row (or the one before, with direction -1) that is shown as the same reason; -1 if there is none. */
  nextWithReason(store: TraceStore, row: Row, direction: 1 | -1): Row;
  /** Record of a request at a row, or -1. */
  recordOf(store: TraceStore, row: Row, request: RequestIndex): number;
  /** Everything known; reads the record's line from the file again, so that unknown fields are there too. */
  details(store: TraceStore, row: Row, request: RequestIndex): Promise<Detail[]>;
  /** The raw lines of a step: snapshot, decision, outcome ... as text, cut if they are huge. */
  rawStep(store: TraceStore, row: Row): Promise<{ event: string; json: string }[]>;
  // ---- the whole
  header(store: TraceStore): HeaderToken[];
  statistics(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Statistics>;
  levelsOfDetail(store: TraceStore): Promise<LevelsOfDetail>;
  lanes(store: TraceStore): Promise<Lanes>;
  life(store: TraceStore, request: RequestIndex): RequestLife;
  waitingSplit(store: TraceStore, request: RequestIndex): WaitingSplit;
  compare(a: TraceStore, b: TraceStore, signal?: AbortSignal): Promise<Comparison>;
  // ---- ways out
  /** The lines of the given rows, as in the file: a Blob of JSON lines. */
  exportJsonl(store: TraceStore, rows: readonly Range[], signal?: AbortSignal): Promise<Blob>;
  /** One line per row: step, ts, counts, bucket, reason ... */
  exportCsv(store: TraceStore, rows: readonly Range[], signal?: AbortSignal): Promise<Blob>;
}
