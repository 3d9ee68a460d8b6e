/**
 * The contract between the data of a trace and the views.
 *
 * Everything in this folder is plain data; `Data` lists the functions that work on it (`data/index.ts` exports them under
 * these names). No DOM, no signals.
 *
 * Terms. A *row* is the position of a step in the trace (0 .. rows - 1), in the order of the file; its *number* is what
 * the trace calls it. A *request* and a *job* are positions in `RequestTable` and `JobTable`. Times are seconds on the
 * clock of the scheduler. All columns of a table have at least as many places as the table has rows, perhaps more: count
 * with `rows` or `count`, never with `.length`. Columns are replaced when they grow: read them from the store each time.
 */

import type { Range, RequestIndex, Row } from "./columns";
import type { Comparison } from "./comparison";
import type { LevelsOfDetail, Weighing } from "./levels";
import type { Lanes, RequestLife } from "./lives";
import type { Badge, Detail, HeaderToken, Pills, RecordedReason, Verdict } from "./moment";
import type { Outcome } from "./outcomes";
import type { OverTime } from "./overTime";
import type { RequestFigures } from "./requestFigures";
import type { Bounds, Goodput } from "./slo";
import type {
  EmbeddedNames,
  Follower,
  LoadCallbacks,
  LoadFailure,
  Loading,
  LoadOptions,
  TraceFiles,
  TraceListing,
} from "./sources";
import type { Share, Statistics } from "./statistics";
import type { TraceStore } from "./trace";
import type { WaitingSplit } from "./waiting";

/** What `data/index.ts` exports. Those that give a promise work in slices: none blocks longer than some 20 ms. */
export interface Data {
  // ---- loading
  /** Sort dropped or picked files into traces, by content where names do not decide it. Files that are no trace: `rejected`. */
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
  /** The raw lines of a step: snapshot, decision, outcome ... as JSON over several lines, whole. */
  rawStep(store: TraceStore, row: Row): Promise<{ event: string; json: string }[]>;
  // ---- the whole
  header(store: TraceStore): HeaderToken[];
  statistics(store: TraceStore, range: Range, signal?: AbortSignal): Promise<Statistics>;
  /** `by`: what a step counts for (default: one). */
  levelsOfDetail(store: TraceStore, by?: Weighing): Promise<LevelsOfDetail>;
  lanes(store: TraceStore): Promise<Lanes>;
  /** A range in so many slices of the clock; null if the trace has no times. */
  overTime(
    store: TraceStore,
    range: Range,
    slices: number,
    bounds: Bounds,
    signal?: AbortSignal,
  ): Promise<OverTime | null>;
  /** Of everybody who arrived; null without a bound, and where the trace has no times. */
  goodput(found: Statistics, bounds: Bounds): Goodput | null;
  /** At least one latency is bounded. */
  isBounded(bounds: Bounds): boolean;
  /** Whether a request that took so many seconds ended whole and within every bound. */
  meets(times: { ttft: number; tpot: number; e2e: number }, bounds: Bounds): boolean;
  requestFigures(store: TraceStore, signal?: AbortSignal): Promise<RequestFigures>;
  /** Where a request stands in the waiting queue before a step, from 1; null if the trace does not name it there. */
  placeInQueue(store: TraceStore, row: Row, request: RequestIndex): { place: number; of: number } | null;
  /** What the rows of a range are shown as, and for how long. */
  shares(store: TraceStore, range: Range): Share[];
  life(store: TraceStore, request: RequestIndex): RequestLife;
  waitingSplit(store: TraceStore, request: RequestIndex): WaitingSplit;
  compare(a: TraceStore, b: TraceStore, signal?: AbortSignal): Promise<Comparison>;
  // ---- ways out
  /** The lines of the given rows, as in the file: a Blob of JSON lines. */
  exportJsonl(store: TraceStore, rows: readonly Range[], signal?: AbortSignal): Promise<Blob>;
  /** One line per row: step, ts, counts, bucket, reason ... */
  exportCsv(store: TraceStore, rows: readonly Range[], signal?: AbortSignal): Promise<Blob>;
}
