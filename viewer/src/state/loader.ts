/** Opening traces: one load at a time for each place on the page, with progress, cancel and a failure that is shown. */

import { failure as failureOf, load, served } from "../data";
import type { Loading, TraceFiles } from "../data/model/sources";
import type { TraceStore } from "../data/model/trace";
import { EMPTY, type HashState } from "./hash";
import { startLive, stopLive } from "./live";
import { applyToTrace } from "./restore";
import {
  failure,
  filterText,
  focusRequest,
  focusRow,
  loading,
  matches,
  other,
  revision,
  selection,
  trace,
  view,
} from "./store";
import { listTraces } from "./traceList";

export type Target = "trace" | "other";

/** Served by `tokenyard view` or another server, not opened as a file. */
export const SERVED = location.protocol === "http:" || location.protocol === "https:";

/** Where the traces came from, for the address: path of the steps file, and whether its requests file is read too. */
export interface Origin {
  path: string;
  reqs: boolean;
}
export const origins: Record<Target, Origin | null> = { trace: null, other: null };

/** State from the address that waits for its trace. */
let pending: HashState = EMPTY;

export function expectState(state: HashState): void {
  pending = state;
}

const running: Record<Target, Loading | null> = { trace: null, other: null };

export interface OpenOptions {
  requests?: boolean;
  target?: Target;
  origin?: Origin | null;
  live?: boolean;
}

/** Read a trace and show it; never rejects: what goes wrong is in `failure`. */
export async function open(files: TraceFiles, options: OpenOptions = {}): Promise<void> {
  const target = options.target ?? "trace";
  running[target]?.cancel();
  if (target === "trace") stopLive();
  failure.value = null;
  let shown = false;
  const show = (store: TraceStore) => {
    if (running[target] !== job) return;
    if (!shown) place(target, store, options.origin ?? null);
    shown = true;
    revision.value += 1;
  };
  const job = load(
    files,
    {
      progress(progress) {
        if (running[target] === job) loading.value = { target, name: files.name, progress, cancel: job.cancel };
      },
      steps: show,
      changed: () => {
        if (running[target] === job || trace.peek() || other.peek()) revision.value += 1;
      },
    },
    { requests: options.requests ?? true, follow: options.live === true },
  );
  running[target] = job;
  loading.value = { target, name: files.name, progress: null, cancel: () => job.cancel() };
  try {
    const store = await job.done;
    show(store);
    if (options.live && options.origin && running[target] === job) startLive(store, options.origin.path);
  } catch (error) {
    const found = failureOf(error);
    if (running[target] === job && !found.cancelled) failure.value = found;
  } finally {
    if (running[target] === job) {
      running[target] = null;
      loading.value = null;
    }
  }
}

function place(target: Target, store: TraceStore, origin: Origin | null): void {
  origins[target] = origin;
  if (target === "other") {
    other.value = store;
    return;
  }
  selection.value = null;
  focusRow.value = -1;
  focusRequest.value = -1;
  matches.value = { rows: null, requests: null };
  view.value = { first: 0, last: 0 };
  trace.value = store;
  const state = pending;
  pending = EMPTY;
  applyToTrace(store, state);
}

/** Back to the landing page. */
export function closeTrace(): void {
  stopLive();
  running.trace?.cancel();
  origins.trace = null;
  trace.value = null;
  filterText.value = "";
  selection.value = null;
  focusRow.value = -1;
  focusRequest.value = -1;
  failure.value = null;
}

export function closeOther(): void {
  running.other?.cancel();
  origins.other = null;
  other.value = null;
}

/** Open a path of the server's machine: one that it lists, else the very file. */
export async function openPath(path: string, options: OpenOptions = {}): Promise<void> {
  const listed = await listTraces().then(
    (found) => found.find(({ files }) => files.steps?.path === path || files.requests?.path === path),
    () => undefined,
  );
  const requests = options.requests ?? true;
  const files = listed?.files ?? unlisted(path);
  await open(files, { ...options, requests, origin: { path: files.steps?.path ?? path, reqs: requests } });
}

function unlisted(path: string): TraceFiles {
  const name = path.split("/").slice(-2, -1)[0] || path;
  const isRequests = /\.requests\.(jsonl|parquet)/.test(path);
  return isRequests ? { name, steps: null, requests: served(path) } : { name, steps: served(path), requests: null };
}
