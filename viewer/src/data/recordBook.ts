/** Lines of a requests file to columns: the state of every queued request at every step. */

import { IndexColumn, TimeColumn, WholeColumn } from "./columns";
import { FieldReader, type Parsed, parsedLine } from "./fields";
import { isBlank } from "./lines";
import type { Whole } from "./model/columns";
import { RECORD_FLAGS } from "./model/requests";
import type { LoadNotes } from "./model/trace";
import { Names } from "./names";
import { noteBadLine } from "./notes";

const MOST_STATUSES = 256;

/** Numbers of a record that may change from step to step. */
export const RECORD_NUMBERS = {
  promptTokens: "num_prompt_tokens",
  numTokens: "num_tokens",
  outputTokens: "num_output_tokens",
  computedTokens: "num_computed_tokens",
  cachedTokens: "num_cached_tokens",
  externalTokens: "num_external_computed_tokens",
  preemptions: "num_preemptions",
  blocks: "num_blocks",
} as const;
export type RecordNumber = keyof typeof RECORD_NUMBERS;
export const RECORD_NUMBER_NAMES = Object.keys(RECORD_NUMBERS) as RecordNumber[];

/** What a worker hands back for its part of the file. */
export interface RecordChunk {
  count: number;
  /** Runs of neighbouring records of the same step: its number, where its first line begins, its ts, how many. */
  groups: { count: number; step: Whole; offset: Float64Array; ts: Float64Array; size: Int32Array };
  request: Int32Array;
  flags: Uint8Array;
  status: Uint8Array;
  statuses: string[];
  numbers: Record<RecordNumber, Whole>;
  ids: string[];
  /** Of each id: the last job, maximum of tokens, priority and arrival in a record. */
  jobs: (string | null)[];
  maxTokens: Whole;
  priority: Whole;
  arrivalTime: Float64Array;
  /** Lines read, for the numbers of bad lines in the next part. */
  lines: number;
}

export class RecordBook {
  private readonly ids = new Names();
  private readonly statuses = new Names();
  private readonly jobs: (string | null)[] = [];
  private readonly maxTokens = new WholeColumn();
  private readonly priority = new WholeColumn();
  private readonly arrivalTime = new TimeColumn();
  private readonly groupStep = new WholeColumn();
  private readonly groupOffset = new TimeColumn();
  private readonly groupTs = new TimeColumn();
  private readonly groupSize = new IndexColumn();
  private readonly request = new IndexColumn();
  private readonly flags = new IndexColumn();
  private readonly status = new IndexColumn();
  private readonly numbers = Object.fromEntries(RECORD_NUMBER_NAMES.map((name) => [name, new WholeColumn()])) as Record<
    RecordNumber,
    WholeColumn
  >;
  private readonly read: FieldReader;

  constructor(
    private readonly file: string,
    private readonly notes: LoadNotes,
  ) {
    this.read = new FieldReader("request", notes);
  }

  get count(): number {
    return this.request.length;
  }

  line(bytes: Uint8Array, offset: number, number: number): void {
    if (isBlank(bytes)) return;
    const record = parsedLine(bytes, this.file, number, this.notes);
    if (record !== null) this.record(record, offset, number);
  }

  record(record: Parsed, offset: number, number: number): void {
    const { read } = this;
    const step = read.whole(record, "step");
    if (step === null) {
      noteBadLine(this.notes, this.file, number, "request without a usable step");
      return;
    }
    this.notes.requestRecords += 1;
    const id = read.text(record, "req_id");
    // A record that names no request counts towards nothing but the notes.
    if (id === null) return;
    const group = this.groupStep.length - 1;
    if (group >= 0 && this.groupStep.data[group] === step) {
      this.groupSize.data[group] += 1;
    } else {
      this.groupStep.push(step);
      this.groupOffset.push(offset);
      this.groupTs.push(read.time(record, "ts"));
      this.groupSize.push(1);
    }
    this.request.push(this.known(id, record));
    this.flags.push(flagsOf(record, read));
    const status = this.statuses.index(read.text(record, "status") ?? "");
    this.status.push(status < MOST_STATUSES ? status : 0);
    for (const name of RECORD_NUMBER_NAMES) this.numbers[name].push(read.whole(record, RECORD_NUMBERS[name]));
  }

  chunk(lines: number): RecordChunk {
    const { count } = this;
    const ids = this.ids.texts.length;
    this.maxTokens.set(Math.max(ids - 1, 0), this.maxTokens.get(Math.max(ids - 1, 0)));
    this.priority.set(Math.max(ids - 1, 0), this.priority.get(Math.max(ids - 1, 0)));
    return {
      count,
      groups: {
        count: this.groupStep.length,
        step: this.groupStep.data,
        offset: this.groupOffset.data,
        ts: this.groupTs.data,
        size: this.groupSize.data,
      },
      request: this.request.data,
      flags: Uint8Array.from(this.flags.data.subarray(0, count)),
      status: Uint8Array.from(this.status.data.subarray(0, count)),
      statuses: this.statuses.texts,
      numbers: Object.fromEntries(RECORD_NUMBER_NAMES.map((name) => [name, this.numbers[name].data])) as Record<
        RecordNumber,
        Whole
      >,
      ids: this.ids.texts,
      jobs: this.jobs,
      maxTokens: this.maxTokens.data,
      priority: this.priority.data,
      arrivalTime: this.arrivalTime.data,
      lines,
    };
  }

  /** The number of a request's id; what does not change about it is taken from its first record. */
  private known(id: string, record: Parsed): number {
    const before = this.ids.texts.length;
    const request = this.ids.index(id);
    if (request === before) {
      this.jobs.push(this.read.text(record, "job_id"));
      this.maxTokens.push(this.read.whole(record, "max_tokens"));
      this.priority.push(this.read.whole(record, "priority"));
      this.arrivalTime.push(this.read.time(record, "arrival_time"));
    }
    return request;
  }
}

function flagsOf(record: Parsed, read: FieldReader): number {
  const queue = read.text(record, "queue");
  return (
    (queue === "running" ? RECORD_FLAGS.running : 0) |
    (queue === "waiting" ? RECORD_FLAGS.waiting : 0) |
    (read.flag(record, "is_prefill_chunk") ? RECORD_FLAGS.prefillChunk : 0) |
    (read.flag(record, "resumable") ? RECORD_FLAGS.resumable : 0)
  );
}
