/** Following a trace that is still being written: `/api/tail` of our own server hands over what was added. */

import { follower } from "../data";
import type { TraceStore } from "../data/model/trace";
import { showRange, showsWhole } from "./moves";
import { live, trace, view } from "./store";

/** Seconds that the server may keep a question open, and pauses after a failure, in milliseconds. */
const WAIT_SECONDS = 20;
const PAUSES_MS = [500, 1_000, 2_000, 5_000, 10_000];

let stop: AbortController | null = null;

/** What to do when the file was replaced by another run: set by the loader's side, which knows how to open one. */
let reopen: (path: string) => void = () => {};

export function onReplaced(open: (path: string) => void): void {
  reopen = open;
}

export function startLive(store: TraceStore, path: string): void {
  stopLive();
  const own = new AbortController();
  stop = own;
  live.value = { phase: "waiting", sentence: "following: waiting for steps", stick: true };
  void follow(store, path, own.signal);
}

export function stopLive(): void {
  stop?.abort();
  stop = null;
  live.value = { phase: "off", sentence: "", stick: true };
}

async function follow(store: TraceStore, path: string, signal: AbortSignal): Promise<void> {
  const adding = follower(store);
  let offset = adding.offset;
  let id = "";
  let failures = 0;
  while (!signal.aborted) {
    try {
      const answer = await ask(path, offset, id, signal);
      failures = 0;
      if (answer.reset) {
        reopen(path);
        return;
      }
      id = answer.id;
      offset = answer.offset;
      if (answer.body.length > 0) await take(store, () => adding.append(answer.body));
      else tell("waiting", "following: nothing new");
    } catch (error) {
      if (signal.aborted) break;
      const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
      failures += 1;
      tell("lost", `the server does not answer (${(error as Error).message}): next try in ${pause / 1_000} s`);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
  adding.close();
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

/** Add, and keep the end in view if it was there. */
async function take(store: TraceStore, append: () => Promise<void>): Promise<void> {
  const { first, last } = view.peek();
  const atEnd = live.peek().stick && last >= store.rows - 1;
  const whole = showsWhole({ first, last }, store.rows);
  await append();
  if (trace.peek() !== store) return;
  tell("receiving", "following");
  if (atEnd) showRange(whole ? 0 : store.rows - (last - first), store.rows);
}

function tell(phase: "waiting" | "receiving" | "lost", sentence: string): void {
  live.value = { ...live.peek(), phase, sentence };
}
