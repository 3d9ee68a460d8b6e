/** Opening traces: one load at a time for each place on the page, with progress, cancel and a failure that is shown. */

import { batch, signal } from "@preact/signals";
import { EMBEDDED_ID, failure as failureOf, load, served } from "../data";
import { filesOf } from "../data/loading";
import type { Loading, TraceFiles } from "../data/model/sources";
import type { TraceStore } from "../data/model/trace";
import { type Engine, engineName, engines, findEngines } from "./engines";
import { EMPTY, type HashState } from "./hash";
import { startLive, stopLive } from "./live";
import { fileMarks, readMarks } from "./marks";
import { applyToPage, applyToTrace, currentState } from "./restore";
import {
  failure,
  filterText,
  focusRequest,
  focusRow,
  live,
  loading,
  matches,
  other,
  revision,
  selection,
  tab,
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

/** State from the address that waits for its trace: one that is being opened, or the first that the user will open. */
let pending: HashState | null = null;
let coming = false;

/** `opening`: its trace is on the way. */
export function expectState(state: HashState | null, opening = true): void {
  pending = state;
  coming = opening && state !== null;
}

/** The trace of a state from the address is on the way. */
export function isExpecting(): boolean {
  return coming;
}

/** Names files that this visit has opened: after a reload they are others, except in a page that brings its trace. */
const VISIT = Math.random().toString(36).slice(2, 10);

/** Names a trace, so that Back finds it: by its path where it has one, which a reload does not change. */
export function keyOf(store: TraceStore | null, origin: Origin | null): string {
  if (!store) return "";
  if (origin) return `path ${origin.path}`;
  return `${document.getElementById(EMBEDDED_ID) ? "page" : VISIT}/${store.key}`;
}

/** How each trace was opened. Files of this machine can be read once more as long as the page is open. */
const opened = new Map<string, { files: TraceFiles; options: OpenOptions }>();
/** The trace that was closed last, as it was: closing it can be undone without reading it again. */
export const closed = signal<{ store: TraceStore; origin: Origin | null; state: HashState } | null>(null);

const running: Record<Target, Loading | null> = { trace: null, other: null };

export interface OpenOptions {
  requests?: boolean;
  target?: Target;
  origin?: Origin | null;
  live?: boolean;
  /** Of a trace that is followed: do not keep its end in view. */
  paused?: boolean;
  /** Traces that lie beside it: its other engines are among them. */
  beside?: readonly TraceFiles[];
}

/** Read a trace and show it; never rejects: what goes wrong is in `failure`. */
export async function open(files: TraceFiles, options: OpenOptions = {}): Promise<void> {
  const target = options.target ?? "trace";
  if (target === "trace") {
    fileMarks.value = [];
    engines.value = [];
    if (files.markers) void readMarks(files.markers);
  }
  running[target]?.cancel();
  if (target === "trace") stopLive();
  failure.value = null;
  let shown = false;
  const show = (store: TraceStore) => {
    if (running[target] !== job) return;
    if (!shown) {
      opened.set(keyOf(store, options.origin ?? null), { files, options });
      place(target, store, options.origin ?? null);
    }
    shown = true;
    revision.value += 1;
  };
  const job = load(
    files,
    {
      progress(progress) {
        if (running[target] === job) loading.value = { target, name: files.name, progress, cancel: job.cancel };
      },
      waiting() {
        if (running[target] === job && loading.peek()) {
          loading.value = { target, name: files.name, progress: null, waiting: true, cancel: job.cancel };
        }
      },
      steps: show,
      changed: () => {
        if (running[target] === job || trace.peek() || other.peek()) revision.value += 1;
      },
    },
    {
      requests: options.requests ?? true,
      follow: options.live === true,
      early: target === "trace" && !namesPlace(pending),
    },
  );
  running[target] = job;
  loading.value = { target, name: files.name, progress: null, cancel: () => job.cancel() };
  try {
    const store = await job.done;
    show(store);
    if (target === "trace" && options.beside && running[target] === job) void findEngines(files, options.beside);
    if (options.live && options.origin && running[target] === job) {
      startLive(store, livePaths(files, options), !options.paused);
    }
  } catch (error) {
    const found = failureOf(error);
    if (running[target] === job && !found.cancelled) failure.value = found;
  } finally {
    if (running[target] === job) {
      running[target] = null;
      if (target === "trace") expectState(null);
      loading.value = null;
    }
  }
}

/** A state names steps or a request: those of the whole file are waited for. */
function namesPlace(state: HashState | null): boolean {
  if (state === null) return false;
  const { view, selection, req, step, extra } = state;
  return Boolean(view || selection || req !== null || step !== null || extra["from"] || extra["to"]);
}

function livePaths(files: TraceFiles, { origin, requests }: OpenOptions) {
  const path = files.requests?.path ?? "";
  return { steps: origin?.path ?? "", requests: requests !== false && path.endsWith(".jsonl") ? path : null };
}

function place(target: Target, store: TraceStore, origin: Origin | null): void {
  if (target === "other") {
    origins[target] = origin;
    other.value = store;
    return;
  }
  closed.value = null;
  present(store, origin, pending ?? EMPTY);
  expectState(null);
}

/** Put a trace on the page, as a state says. */
function present(store: TraceStore, origin: Origin | null, state: HashState): void {
  batch(() => {
    origins.trace = origin;
    matches.value = { rows: null, requests: null };
    view.value = { first: 0, last: 0 };
    trace.value = store;
    applyToTrace(store, state);
  });
}

/** Back to the landing page. */
export function closeTrace(): void {
  stopLive();
  running.trace?.cancel();
  const store = trace.peek();
  const state = currentState(origins.trace, origins.other?.path ?? null);
  batch(() => {
    if (store) closed.value = { store, origin: origins.trace, state };
    origins.trace = null;
    engines.value = [];
    trace.value = null;
    filterText.value = "";
    selection.value = null;
    focusRow.value = -1;
    focusRequest.value = -1;
    failure.value = null;
  });
}

/** Undo `closeTrace`: the trace is still in memory. */
export function reopenClosed(): void {
  const found = closed.peek();
  if (!found) return;
  closed.value = null;
  applyToPage(found.state);
  present(found.store, found.origin, found.state);
}

/** Show the trace of an entry of the history, as its state says; false if it is none of this visit's. */
export function reopen(key: string, state: HashState): boolean {
  if (other.peek() && keyOf(other.peek(), origins.other) === key) {
    swapTraces(state);
    return true;
  }
  const last = closed.peek();
  if (last && keyOf(last.store, last.origin) === key) {
    reopenClosed();
    const store = trace.peek();
    applyToPage(state);
    if (store) applyToTrace(store, state);
    return true;
  }
  const found = opened.get(key);
  if (!found) return false;
  expectState(state);
  void open(found.files, found.options);
  return true;
}

/** Compare's B becomes the trace that the other tabs show; step, request and selection stay, by number and by id. */
export function swapTraces(as?: HashState): void {
  const [a, b] = [trace.peek(), other.peek()];
  if (!a || !b) return;
  stopLive();
  const state = as ?? currentState(origins.trace, null);
  batch(() => {
    [origins.trace, origins.other] = [origins.other, origins.trace];
    other.value = a;
    if (as) applyToPage(as);
    present(b, origins.trace, state);
  });
}

/** Another engine of the run becomes the trace on the page, and the one that was stands beside it. */
export function showEngine(engine: Engine): void {
  const [shown, { store }] = [trace.peek(), engine];
  const files = shown && filesOf(shown);
  if (!shown || !store || !files) return;
  stopLive();
  const [name, path] = [engineName.peek(), engine.files.steps?.path];
  batch(() => {
    engines.value = engines.peek().map((each) => (each.name === engine.name ? { name, files, store: shown } : each));
    engineName.value = engine.name;
    selection.value = null;
    present(store, origins.trace && path ? { path, reqs: false } : null, { ...EMPTY, tab: tab.peek() });
    opened.set(keyOf(store, origins.trace), { files: engine.files, options: { origin: origins.trace } });
  });
}

export function closeOther(): void {
  running.other?.cancel();
  origins.other = null;
  other.value = null;
}

/** Open a path of the server's machine: one that it lists, else the very file. */
export async function openPath(path: string, options: OpenOptions = {}): Promise<void> {
  const all = await listTraces().catch(() => []);
  const listed = all.find(({ files }) => files.steps?.path === path || files.requests?.path === path);
  const beside = all.map(({ files }) => files);
  const requests = options.requests ?? true;
  const files = listed?.files ?? unlisted(path);
  await open(files, { beside, ...options, requests, origin: { path: files.steps?.path ?? path, reqs: requests } });
}

/** The server has the file of the trace that is shown, and can say what it grows by. */
export function canFollow(): boolean {
  return SERVED && live.peek().phase === "off" && (origins.trace?.path.endsWith(".jsonl") ?? false);
}

/** Read the trace that is shown again, and stay at its end while it is written. */
export async function followTrace(): Promise<void> {
  const origin = origins.trace;
  if (origin) await openPath(origin.path, { requests: origin.reqs, live: true });
}

function unlisted(path: string): TraceFiles {
  const name = path.split("/").slice(-2, -1)[0] || path;
  const isRequests = /\.requests\.(jsonl|parquet)/.test(path);
  return isRequests ? { name, steps: null, requests: served(path) } : { name, steps: served(path), requests: null };
}
