/** Following a trace that is still being written: the readers of its files stay, and read on. */

import { addRecordNotes, attachRecords } from "./attach";
import { LoadError } from "./loadError";
import type { Follower, LoadCallbacks } from "./model/sources";
import type { LoadNotes } from "./model/trace";
import type { RecordChunk } from "./recordBook";
import { adopt, type StoreInside } from "./store";
import type { FromWorker, ToWorker } from "./worker";

export type RequestsAnswer = { chunk: RecordChunk; notes: LoadNotes; bytes: number };

/** Put what the readers of a requests file returned beside the steps. */
export async function attachAnswers(store: StoreInside, parts: readonly RequestsAnswer[]): Promise<void> {
  addRecordNotes(
    store,
    parts.map(({ notes, chunk }) => ({ notes, lines: chunk.lines })),
  );
  await attachRecords(
    store,
    parts.map(({ chunk }) => chunk),
  );
}

/** Adds to a store what its files grow by. */
export class WorkerFollower implements Follower {
  offset: number;
  requestsOffset: number | null = null;
  private readonly steps: Line;
  private requests: Line | null = null;
  private readonly parts: RequestsAnswer[] = [];

  constructor(
    worker: Worker,
    private readonly store: StoreInside,
    private readonly callbacks: LoadCallbacks,
  ) {
    this.offset = store.bytes;
    this.steps = new Line(worker, (message) => this.grown(message));
  }

  /** Request records are followed, too: `answer` holds those so far. */
  takeRequests(worker: Worker, answer: RequestsAnswer): void {
    this.requestsOffset = answer.bytes;
    this.parts.push(answer);
    this.requests = new Line(worker, (message) => {
      if (message.type === "requests") this.parts.push(message);
    });
  }

  append(bytes: Uint8Array): Promise<void> {
    this.offset += bytes.length;
    return this.steps.send(bytes);
  }

  async appendRequests(bytes: Uint8Array): Promise<void> {
    this.requestsOffset = (this.requestsOffset ?? 0) + bytes.length;
    await this.requests?.send(bytes);
    // Records belong to steps: these are judged again with what is known now.
    await this.append(new Uint8Array(0));
  }

  close(): void {
    if (this.store.stage === "following") this.store.stage = "complete";
    this.steps.close();
    this.requests?.close();
  }

  private async grown(message: FromWorker): Promise<void> {
    if (message.type !== "steps") return;
    adopt(this.store, message.tables);
    if (this.parts.length > 0) await attachAnswers(this.store, this.parts);
    this.callbacks.changed?.(this.store);
  }
}

/** Pieces on their way to a worker, and its answers, one after the other. */
class Line {
  private pending: { resolve: () => void; reject: (error: unknown) => void }[] = [];
  private last: Promise<void> = Promise.resolve();

  constructor(
    private readonly worker: Worker,
    take: (message: FromWorker) => Promise<void> | void,
  ) {
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      const asked = this.pending.shift();
      this.last = this.last.then(() => take(data)).then(asked?.resolve, asked?.reject);
    };
    worker.onerror = (event) => this.pending.shift()?.reject(new LoadError("Following stopped", event.message, ""));
  }

  send(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.pending.push({ resolve, reject });
      this.worker.postMessage({ type: "append", bytes } satisfies ToWorker);
    });
  }

  close(): void {
    this.worker.terminate();
    for (const { resolve } of this.pending.splice(0)) resolve();
  }
}
