/** The annotations of each loaded trace, and where they are kept: by the server, or in a file that the user saves. */

import { type Signal, signal } from "@preact/signals";
import type { TraceStore } from "../data/model/trace";
import { announce } from "../state/store";
import {
  type Annotation,
  add,
  fromDocument,
  merge,
  readAnnotations,
  remove,
  sideFileName,
  writeAnnotations,
} from "./annotations";
import { download } from "./download";

export interface Notebook {
  list: Annotation[];
  /** Everything in `list` lies in the side file too. */
  saved: boolean;
  /** Kept by the server: every change is written at once. */
  served: boolean;
  /** What went wrong, or was left out, last. */
  problem: string;
}

const EMPTY: Notebook = { list: [], saved: true, served: false, problem: "" };
const notebooks = new Map<number, { state: Signal<Notebook>; tag: string | null }>();

/** The notebook of a trace; opened, and read from the server if that is where the trace comes from, on request. */
export function notebookOf(store: TraceStore): Signal<Notebook> {
  let entry = notebooks.get(store.key);
  if (!entry) {
    entry = { state: signal(EMPTY), tag: null };
    notebooks.set(store.key, entry);
    if (isServed(store)) void readFromServer(store);
  }
  return entry.state;
}

export function annotationsOf(store: TraceStore): readonly Annotation[] {
  return notebookOf(store).value.list;
}

export function addAnnotation(store: TraceStore, step: number, text: string): void {
  change(store, (list) => add(list, step, text, new Date().toISOString()));
}

export function removeAnnotation(store: TraceStore, gone: Annotation): void {
  change(store, (list) => remove(list, gone));
}

/** A side file that the user picked or dropped: what it holds is added to what is there. */
export async function annotationsFromFile(store: TraceStore, file: File): Promise<void> {
  const found = readAnnotations(await file.text());
  change(store, (list) => merge(list, found.annotations));
  update(store, { problem: found.problems.join(" ") });
  announce(`${found.annotations.length} annotations read from ${file.name.slice(0, 80)}`);
}

export function saveToFile(store: TraceStore): void {
  const text = writeAnnotations(store.name, notebookOf(store).peek().list);
  download(new Blob([text], { type: "application/json" }), sideFileName(store.source));
  update(store, { saved: true });
}

function change(store: TraceStore, edit: (list: readonly Annotation[]) => Annotation[]): void {
  const { list, served } = notebookOf(store).peek();
  update(store, { list: edit(list), saved: false, problem: "" });
  if (served) void writeToServer(store);
}

function update(store: TraceStore, change: Partial<Notebook>): void {
  const state = notebookOf(store);
  state.value = { ...state.peek(), ...change };
}

/** Traces that the server gave carry its whole path; dropped files only a name. */
export function isServed(store: TraceStore): boolean {
  return location.protocol.startsWith("http") && store.source.startsWith("/");
}

function address(store: TraceStore): string {
  return `/api/annotations?path=${encodeURIComponent(store.source)}`;
}

async function readFromServer(store: TraceStore): Promise<void> {
  const entry = notebooks.get(store.key);
  try {
    const answer = await fetch(address(store));
    if (!answer.ok || !entry) return;
    entry.tag = answer.headers.get("ETag");
    const document: unknown = await answer.json();
    const found = document === null ? { annotations: [], problems: [] } : fromDocument(document);
    update(store, { served: true, problem: found.problems.join(" ") });
    const { list } = entry.state.peek();
    update(store, { list: merge(list, found.annotations), saved: list.length === 0 });
    if (list.length > 0) await writeToServer(store);
  } catch {
    // A server that keeps no annotations: they can be saved as a file.
  }
}

const TRIES = 3;

/** Write the list; if another page wrote in between, take in theirs and try again. */
async function writeToServer(store: TraceStore): Promise<void> {
  const entry = notebooks.get(store.key);
  if (!entry) return;
  for (let attempt = 0; attempt < TRIES; attempt++) {
    const sent = entry.state.peek().list;
    const answer = await put(store, sent, entry.tag);
    if (answer?.ok) {
      entry.tag = answer.headers.get("ETag") ?? (await currentTag(store));
      update(store, { saved: entry.state.peek().list === sent, problem: "" });
      return;
    }
    if (answer?.status !== 409 && answer?.status !== 412) break;
    const theirs = await fetch(address(store));
    entry.tag = theirs.headers.get("ETag");
    update(store, { list: merge(entry.state.peek().list, fromDocument(await theirs.json()).annotations) });
  }
  update(store, { saved: false, problem: "The server did not take the annotations: save them as a file." });
}

async function put(store: TraceStore, list: Annotation[], tag: string | null): Promise<Response | null> {
  try {
    return await fetch(address(store), {
      method: "PUT",
      headers: {
        "Content-Type": "application/json",
        "Tokenyard-Annotations": "1",
        ...(tag ? { "If-Match": tag } : {}),
      },
      body: writeAnnotations(store.name, list),
    });
  } catch {
    return null;
  }
}

async function currentTag(store: TraceStore): Promise<string | null> {
  const answer = await fetch(address(store), { method: "GET" });
  return answer.headers.get("ETag");
}
