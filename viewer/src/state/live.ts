/** Following a trace that is still being written: `/api/tail` of our own server hands over what was added. */

import { effect } from "@preact/signals";
import { follower } from "../data";
import type { TraceStore } from "../data/model/trace";
import { showEnd, showsWhole } from "./moves";
import { live, trace, view } from "./store";

/** Seconds that the server may keep a question open, and pauses after a failure, in milliseconds. */
const WAIT_SECONDS = 20;
const PAUSES_MS = [500, 1_000, 2_000, 5_000, 10_000];

let stop: AbortController | null = null;
/** The view is moved from here, not by the user. */
let moving = false;

/** What to do when the file was replaced by another run: set by the loader's side, which knows how to open one. */
let reopen: (path: string) => void = () => {};

export function onReplaced(open: (path: string) => void): void {
  reopen = open;
}

/** Paths of the files that grow; the requests file is followed where it was read. */
export interface LivePaths {
  steps: string;
  requests: string | null;
}

export function startLive(store: TraceStore, paths: LivePaths, stick = true): void {
  stopLive();
  const own = new AbortController();
  stop = own;
  live.value = { phase: "waiting", sentence: "following: waiting for steps", stick, heard: Date.now() };
  if (stick) keepEnd();
  void follow(store, paths, own.signal);
}

export function stopLive(): void {
  stop?.abort();
  stop = null;
  live.value = { phase: "off", sentence: "", stick: true, heard: 0 };
}

/** Keep the end in view from now on, or let the user look where they are. */
export function setStick(stick: boolean): void {
  live.value = { ...live.peek(), stick };
  if (stick) keepEnd();
}

/** A user who moves away from the end wants to stay there. */
export function watchScrolling(): void {
  effect(() => {
    const { last } = view.value;
    const rows = trace.peek()?.rows ?? 0;
    if (!moving && sticks() && last < rows - 0.5) setStick(false);
  });
}

/** Move the view to the end. */
export function keepEnd(whole = false): void {
  quietly(() => showEnd(whole));
}

/** Move the view without that being taken for the user's doing. */
export function quietly(move: () => void): void {
  moving = true;
  move();
  moving = false;
}

/** The end is to stay in view. */
export function sticks(): boolean {
  const { phase, stick } = live.peek();
  return stick && phase !== "off";
}

async function follow(store: TraceStore, paths: LivePaths, signal: AbortSignal): Promise<void> {
  const adding = follower(store);
  const from = adding.requestsOffset;
  if (paths.requests && from !== null) {
    // A requests file that was replaced belongs to a steps file that was, too: that one leads.
    void tail(paths.requests, from, signal, (piece) => take(store, () => adding.appendRequests(piece)));
  }
  const replaced = await tail(paths.steps, adding.offset, signal, (piece) => take(store, () => adding.append(piece)));
  if (replaced && !signal.aborted) reopen(paths.steps);
  adding.close();
}

/** Hand over what a file grows by, until the signal says so; true if the file was replaced by another one. */
async function tail(
  path: string,
  from: number,
  signal: AbortSignal,
  give: (piece: Uint8Array) => Promise<void>,
): Promise<boolean> {
  let offset = from;
  let id = "";
  let failures = 0;
  while (!signal.aborted) {
    try {
      const answer = await ask(path, offset, id, signal);
      failures = 0;
      if (answer.reset) return true;
      id = answer.id;
      offset = answer.offset;
      if (answer.body.length > 0) await give(answer.body);
      else tell("waiting", "following: nothing new");
    } catch (error) {
      if (signal.aborted) break;
      const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
      failures += 1;
      tell("lost", `the server does not answer (${(error as Error).message}): next try in ${pause / 1_000} s`);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  return false;
}

interface Tail {
  body: Uint8Array;
  offset: number;
  id: string;
  reset: boolean;
}

async function ask(path: string, offset: number, id: string, signal: AbortSignal): Promise<Tail> {
  const known = id === "" ? "" : `&id=${encodeURIComponent(id)}`;
  const url = `/api/tail?path=${encodeURIComponent(path)}&offset=${offset}${known}&wait=${WAIT_SECONDS}`;
  const answer = await fetch(url, { signal });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const body = new Uint8Array(await answer.arrayBuffer());
  const next = Number(answer.headers.get("Tokenyard-Offset") ?? Number.NaN);
  return {
    body,
    offset: Number.isFinite(next) ? next : offset + body.length,
    id: answer.headers.get("Tokenyard-Id") ?? "",
    reset: answer.headers.get("Tokenyard-Reset") === "1" && offset > 0,
  };
}

/** Add, and keep the end in view if that is wanted. */
async function take(store: TraceStore, append: () => Promise<void>): Promise<void> {
  const whole = showsWhole(view.peek(), store.rows);
  await append();
  if (trace.peek() !== store || stop === null) return;
  live.value = { ...live.peek(), heard: Date.now() };
  tell("receiving", "following");
  if (live.peek().stick) keepEnd(whole);
}

function tell(phase: "waiting" | "receiving" | "lost", sentence: string): void {
  live.value = { ...live.peek(), phase, sentence };
}
