/** Where traces come from, and how they are loaded. */

import type { TraceStore } from "./trace";

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
  /** Marked moments. */
  markers?: TraceSource | null;
  /** The whole steps file, of which `steps` may be the beginning as long as the rest is on its way. */
  whole?: Promise<TraceSource>;
  /** A requests file that is still on its way; null: there is none. */
  rest?: Promise<TraceSource | null>;
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
  /** The steps file is read, or its first steps are (`early`): draw. Called once; `changed` is called with further rows. */
  steps?(store: TraceStore): void;
  /** Request records are attached, or rows were added. */
  changed?(store: TraceStore): void;
  /** While following: the file holds no step yet, and is looked at again. */
  waiting?(): void;
}

export interface LoadOptions {
  /** Read the requests file too (default true). */
  requests?: boolean;
  /** Draw the first steps while the rest is read: `stage` of the store is "reading" until then. */
  early?: boolean;
  /** Keep the steps file's parser, so that `follower` can go on where the file ended. */
  follow?: boolean;
}

/** Adds to a trace that is still being written. */
export interface Follower {
  /** Bytes of the steps file taken so far: where to go on reading; and of the requests file, null if it is not followed. */
  readonly offset: number;
  readonly requestsOffset: number | null;
  /** Hand over what follows, cut anywhere; resolves when the store has grown (`version` rises, `changed` is called). */
  append(bytes: Uint8Array): Promise<void>;
  /** The same for the requests file. */
  appendRequests(bytes: Uint8Array): Promise<void>;
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
  /** "" where the trace does not say. */
  policy: string;
  model: string;
  stepsMb: number | null;
  requestsMb: number | null;
  files: TraceFiles;
  /** The folder of its run, which several engines share. */
  run: string;
  /** Which of several engines wrote it. */
  rank: number | null;
  /** Its end shows that the run went on after it; only plain files show it. */
  partial: boolean;
}
