/** Loading a trace: the steps file first, which makes the first picture; then the requests file, in two workers. */

import { isGzip, isParquet, packedBlob } from "./bytes";
import { attachAnswers, type RequestsAnswer, WorkerFollower } from "./following";
import { failure, LoadError } from "./loadError";
import type { Follower, LoadCallbacks, Loading, LoadOptions, TraceFiles, TraceSource } from "./model/sources";
import type { TraceStore } from "./model/trace";
import { startWorker } from "./startWorker";
import { StepsReader, type StepTables } from "./steps";
import { adopt, type StoreInside, storeOf } from "./store";
import { snapshotsOf } from "./withoutSteps";
import type { FromWorker, ToWorker } from "./worker";

/** Requests files at least this large are read by two workers. */
const SPLIT_AT = 8 * 2 ** 20;
/** Milliseconds between two looks at a file without a step. */
const LOOK_AGAIN_MS = 1_000;

const sources = new WeakMap<TraceStore, TraceFiles>();
const followers = new WeakMap<TraceStore, WorkerFollower>();

/** The files behind a store. */
export function filesOf(store: TraceStore): TraceFiles | undefined {
  return sources.get(store);
}

export function load(files: TraceFiles, callbacks: LoadCallbacks = {}, options: LoadOptions = {}): Loading {
  const job = new LoadJob(files, callbacks, options);
  return { done: job.run(), cancel: () => job.cancel() };
}

export function follower(store: TraceStore): Follower {
  const found = followers.get(store);
  if (!found) throw new LoadError("Not following", "the trace was loaded without `follow`", "Load it with `follow`.");
  return found;
}

class LoadJob {
  private readonly workers = new Set<Worker>();
  private cancelled = false;
  /** The store of the first steps, while the rest is read. */
  private early: StoreInside | null = null;

  constructor(
    private readonly files: TraceFiles,
    private readonly callbacks: LoadCallbacks,
    private readonly options: LoadOptions,
  ) {}

  cancel(): void {
    this.cancelled = true;
    for (const worker of this.workers) worker.postMessage({ type: "stop" } satisfies ToWorker);
  }

  async run(): Promise<TraceStore> {
    try {
      const store = await this.steps();
      await this.arrived(store);
      const wanted = this.files.requests && this.options.requests !== false && !store.records;
      if (wanted && !this.cancelled) await this.requests(store);
      store.stage = this.cancelled ? "cancelled" : followers.has(store) ? "following" : "complete";
      return store;
    } finally {
      for (const worker of this.workers) worker.terminate();
    }
  }

  /** Wait for a requests file that is on its way; without it there are the steps. */
  private async arrived(store: StoreInside): Promise<void> {
    const { rest } = this.files;
    if (!rest) return;
    try {
      this.files.requests = await rest;
    } catch (error) {
      store.notes.sentences.push(`the request records could not be unpacked: ${failure(error).detail}`);
    }
  }

  private async steps(): Promise<StoreInside> {
    const source = this.files.steps;
    if (!source) return this.withoutSteps();
    const keep = this.options.follow === true && !isParquet(source.path);
    const whole = await this.whole(source);
    if (!whole) return this.early as StoreInside;
    const { tables, worker } = await this.tables(whole, keep);
    const store = this.early ?? this.opened(tables, source.path);
    this.workers.delete(worker);
    if (keep) followers.set(store, new WorkerFollower(worker, store, this.callbacks));
    else worker.terminate();
    if (this.early) {
      adopt(store, tables);
      store.stage = "steps";
      this.callbacks.changed?.(store);
    } else this.callbacks.steps?.(store);
    return store;
  }

  /** The whole steps file. While it is unpacked its beginning is shown, which stays alone (null) if the rest is damaged. */
  private async whole(source: TraceSource): Promise<TraceSource | null> {
    const { whole } = this.files;
    if (!whole) return source;
    const arrived = whole.then((file) => {
      this.files.steps = file;
      delete this.files.whole;
      return file;
    });
    arrived.catch(() => {});
    if (this.options.early) {
      const worker = this.worker();
      const answer = await this.ask(worker, { type: "steps", source, keep: true, early: false }, "steps");
      if (answer.type === "steps" && answer.tables.rows > 0) this.begun(answer.tables, source);
      worker.terminate();
      this.workers.delete(worker);
    }
    try {
      const file = await arrived;
      return this.cancelled && this.early ? null : file;
    } catch (error) {
      if (!this.early) throw error;
      this.early.notes.sentences.push(`the rest of the steps could not be unpacked: ${failure(error).detail}`);
      this.early.notes.cutOff = true;
      this.early.stage = "steps";
      this.callbacks.changed?.(this.early);
      return null;
    }
  }

  /** Show the first steps; the rest is still being read. */
  private begun(tables: StepTables, source: TraceSource): void {
    const store = this.opened(tables, source.path);
    store.stage = "reading";
    this.early = store;
    this.callbacks.steps?.(store);
  }

  /** A followed file that holds no step yet is looked at again until there is one. */
  private async tables(source: TraceSource, keep: boolean): Promise<{ tables: StepTables; worker: Worker }> {
    for (;;) {
      const worker = this.worker();
      const early = this.options.early === true && !keep && this.early === null;
      const answer = await this.ask(worker, { type: "steps", source, keep, early }, "steps");
      if (answer.type !== "steps") throw new Error("the worker answered something else");
      const { tables } = answer;
      if (!keep || tables.rows > 0 || tables.notes.badLines > 0 || this.cancelled) return { tables, worker };
      worker.terminate();
      this.workers.delete(worker);
      this.callbacks.waiting?.();
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    }
  }

  private opened(tables: StepTables, source: string): StoreInside {
    if (tables.rows === 0) {
      if (this.cancelled) throw cancelledError();
      const { badLines, firstBadLines } = tables.notes;
      const why = firstBadLines[0] ? `; line ${firstBadLines[0].line}: ${firstBadLines[0].problem}` : "";
      throw new LoadError(
        "No step could be read",
        `${source}: ${badLines} bad lines${why}`,
        "Choose a *.steps.jsonl file (plain, .gz or .parquet) as `tokenyard run --trace` writes it.",
      );
    }
    const store = storeOf(tables, this.files.name, source);
    sources.set(store, this.files);
    return store;
  }

  /** A requests file alone: its records stand for the steps. */
  private async withoutSteps(): Promise<StoreInside> {
    const source = this.files.requests;
    if (!source) throw new LoadError("Nothing to load", "no file was chosen", "Drop a steps file.");
    const parts = await this.chunks(source);
    const reader = new StepsReader(source.path);
    let line = 0;
    for (const snapshot of snapshotsOf(parts.map(({ chunk }) => chunk))) {
      line += 1;
      reader.record(snapshot, line);
    }
    reader.end();
    const store = this.opened(reader.tables(false), source.path);
    await attachAnswers(store, parts);
    this.callbacks.steps?.(store);
    return store;
  }

  private async requests(store: StoreInside): Promise<void> {
    const source = this.files.requests;
    if (!source) return;
    store.stage = "requests";
    let parts: RequestsAnswer[];
    const following = followers.get(store);
    try {
      parts = following && !isParquet(source.path) ? [await this.kept(source, following)] : await this.chunks(source);
    } catch (error) {
      // The steps are there: what is missing is said, and the rest can be used.
      store.notes.sentences.push(`${source.path} could not be read: ${failure(error).detail}`);
      store.version += 1;
      this.callbacks.changed?.(store);
      return;
    }
    await attachAnswers(store, parts);
    this.callbacks.changed?.(store);
  }

  /** The records so far; the reader is the follower's from now on. */
  private async kept(source: TraceSource, following: WorkerFollower): Promise<RequestsAnswer> {
    const worker = this.worker();
    const answer = (await this.ask(
      worker,
      { type: "requests", source, part: null, keep: true },
      "requests",
    )) as RequestsAnswer;
    this.workers.delete(worker);
    following.takeRequests(worker, answer);
    return answer;
  }

  private async chunks(source: TraceSource): Promise<RequestsAnswer[]> {
    const cuts = await this.cuts(source);
    const read: number[] = cuts.map(() => 0);
    const records: number[] = cuts.map(() => 0);
    const total = source.kind === "file" ? source.file.size : null;
    const answers = cuts.map((part, index) =>
      this.ask(this.worker(), { type: "requests", source, part, keep: false }, "requests", (progress) => {
        read[index] = progress.bytesRead;
        records[index] = progress.records;
        const sum = (numbers: number[]) => numbers.reduce((all, number) => all + number, 0);
        this.callbacks.progress?.({
          file: "requests",
          bytesRead: sum(read),
          bytesTotal: total ?? progress.bytesTotal,
          records: sum(records),
        });
      }),
    );
    return (await Promise.all(answers)) as RequestsAnswer[];
  }

  /** A plain file is split in two; what is compressed or comes from a server is read from its beginning. */
  private async cuts(source: TraceSource): Promise<({ start: number; end: number } | null)[]> {
    if (source.kind !== "file" || source.file.size < SPLIT_AT || isParquet(source.path) || isGzip(source.path)) {
      return [null];
    }
    if (await packedBlob(source.file)) return [null];
    const { size } = source.file;
    const middle = size >> 1 || Math.floor(size / 2);
    return [
      { start: 0, end: middle },
      { start: middle, end: size },
    ];
  }

  private worker(): Worker {
    const worker = startWorker();
    this.workers.add(worker);
    return worker;
  }

  private ask(
    worker: Worker,
    order: ToWorker,
    file: "steps" | "requests",
    progress?: (message: Extract<FromWorker, { type: "progress" }>) => void,
  ): Promise<FromWorker> {
    return new Promise((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
        if (data.type === "progress") {
          if (progress) progress(data);
          else this.callbacks.progress?.({ file, ...data });
        } else if (data.type === "early") {
          if ("source" in order && !this.cancelled) this.begun(data.tables, order.source);
        } else if (data.type === "failed") {
          reject(new LoadError("The file could not be read", data.message, "Is it there, whole, and readable?"));
        } else resolve(data);
      };
      worker.onerror = (event) => {
        reject(
          new LoadError(
            "Reading stopped",
            event.message || "the browser ended the reader, probably for want of memory",
            "Close other tabs, load the steps file without its requests file, or use `tokenyard view`.",
          ),
        );
      };
      worker.postMessage("source" in order ? { ...order, source: absolute(order.source) } : order);
    });
  }
}

/** A worker made from a Blob has no address of its own that a relative one could start from. */
function absolute(source: TraceSource): TraceSource {
  return source.kind === "url" ? { ...source, url: new URL(source.url, location.href).href } : source;
}

function cancelledError(): LoadError {
  return new LoadError("Cancelled", "nothing had been read yet", "Load the trace again, or another one.", true);
}
