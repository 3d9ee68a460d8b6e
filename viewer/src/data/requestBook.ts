/** What is known of each request for good, gathered while the steps are read. */

import { IndexColumn, TimeColumn, WholeColumn } from "./columns";
import { FieldReader, type Parsed } from "./fields";
import { MISSING, type Whole } from "./model/columns";
import type { RequestTable } from "./model/requests";
import type { LoadNotes } from "./model/trace";
import { Names } from "./names";

export class RequestBook {
  readonly ids = new Names();
  readonly jobs = new Names();
  readonly finishReasons = new Names();
  readonly adapters = new Names();
  readonly tenants = new Names();
  lookups = 0;
  connector: string | null = null;
  /** The trace has arrival or end records. */
  livesRecorded = false;
  hasEnded = false;
  private readonly job = new IndexColumn();
  private readonly arrivalTime = new TimeColumn();
  private readonly takenInTime = new TimeColumn();
  private readonly firstScheduledTime = new TimeColumn();
  private readonly firstTokenTime = new TimeColumn();
  private readonly finishedTime = new TimeColumn();
  private readonly timesRecorded = new IndexColumn();
  private readonly arrivedRow = new IndexColumn();
  private readonly finishedRow = new IndexColumn();
  private readonly promptTokens = new WholeColumn();
  private readonly maxTokens = new WholeColumn();
  private readonly outputTokens = new WholeColumn();
  private readonly priority = new WholeColumn();
  private readonly numPreemptions = new WholeColumn();
  private readonly recomputedTokens = new WholeColumn();
  private readonly items = new WholeColumn();
  private readonly itemTokens = new WholeColumn();
  private readonly finishReason = new IndexColumn();
  private readonly lookupRow = new IndexColumn();
  private readonly lookupStep = new WholeColumn();
  private readonly lookupTs = new TimeColumn();
  private readonly arrivedStep = new WholeColumn();
  private readonly localHitTokens = new WholeColumn();
  private readonly externalHitTokens = new WholeColumn();
  private readonly lookupPromptTokens = new WholeColumn();
  private readonly adapter = new IndexColumn();
  private readonly tenant = new IndexColumn();
  private readonly arrivals: FieldReader;
  private readonly ends: FieldReader;
  private readonly hits: FieldReader;

  constructor(notes: LoadNotes) {
    this.arrivals = new FieldReader("request_arrived", notes);
    this.ends = new FieldReader("request_finished", notes);
    this.hits = new FieldReader("prefix_cache_lookup", notes);
  }

  request(id: string): number {
    return this.ids.index(id);
  }

  /** Note the jobs of a queue's requests, if the lists run parallel. */
  jobsOf(requests: readonly number[], jobs: readonly (string | null)[] | null): void {
    if (jobs === null || jobs.length !== requests.length) return;
    for (let i = 0; i < requests.length; i++) {
      const job = jobs[i];
      if (job && (this.job.data[requests[i]] < 0 || requests[i] >= this.job.length)) {
        this.job.set(requests[i], this.jobs.index(job));
      }
    }
  }

  arrived(record: Parsed, row: number): void {
    const read = this.arrivals;
    this.livesRecorded = true;
    const id = read.text(record, "req_id");
    if (id === null) return;
    const request = this.request(id);
    this.setJob(request, read.text(record, "job_id"));
    this.arrivedRow.set(request, row);
    set(this.arrivedStep, request, read.whole(record, "step"));
    this.timesRecorded.set(request, 1);
    const takenIn = read.time(record, "ts");
    set(this.takenInTime, request, takenIn);
    set(this.arrivalTime, request, read.time(record, "arrival_time") ?? takenIn);
    set(this.promptTokens, request, read.whole(record, "num_prompt_tokens"));
    set(this.maxTokens, request, read.whole(record, "max_tokens"));
    set(this.priority, request, read.whole(record, "priority"));
    const [adapter, tenant] = [read.text(record, "lora_name"), read.text(record, "cache_salt_hash")];
    const items = read.objects(record, "mm_items");
    if (items.length > 0) {
      this.items.set(request, items.length);
      const lengths = items.map(({ length }) => (Number.isInteger(length) ? (length as number) : 0));
      this.itemTokens.set(
        request,
        lengths.reduce((sum, length) => sum + length, 0),
      );
    }
    if (adapter) this.adapter.set(request, this.adapters.index(adapter));
    if (tenant) this.tenant.set(request, this.tenants.index(tenant));
  }

  finished(record: Parsed, row: number): void {
    const read = this.ends;
    this.livesRecorded = true;
    this.hasEnded = true;
    const id = read.text(record, "req_id");
    if (id === null) return;
    const request = this.request(id);
    this.setJob(request, read.text(record, "job_id"));
    this.finishedRow.set(request, row);
    this.timesRecorded.set(request, 1);
    set(this.arrivalTime, request, read.time(record, "arrival_time"));
    set(this.firstScheduledTime, request, read.time(record, "first_scheduled_time"));
    set(this.firstTokenTime, request, read.time(record, "first_token_time"));
    set(this.finishedTime, request, read.time(record, "finished_time") ?? read.time(record, "ts"));
    set(this.promptTokens, request, read.whole(record, "num_prompt_tokens"));
    set(this.outputTokens, request, read.whole(record, "num_output_tokens"));
    set(this.numPreemptions, request, read.whole(record, "num_preemptions"));
    set(this.recomputedTokens, request, read.whole(record, "recomputed_tokens"));
    this.finishReason.set(request, this.finishReasons.index(read.text(record, "finish_reason") ?? "unknown"));
  }

  /** It got its first token; its end may tell the moment better. */
  began(request: number, ts: number): void {
    const { data, length } = this.firstTokenTime;
    if (request >= length || Number.isNaN(data[request])) this.firstTokenTime.set(request, ts);
  }

  lookedUp(record: Parsed, row: number): void {
    const read = this.hits;
    const id = read.text(record, "req_id");
    const prompt = read.whole(record, "total_prompt_tokens");
    this.connector ??= read.text(record, "connector");
    if (id === null) return;
    const request = this.request(id);
    this.setJob(request, read.text(record, "job_id"));
    if (prompt !== null && this.lookupPromptTokens.get(request) === MISSING) this.lookups += 1;
    this.lookupRow.set(request, row);
    set(this.lookupStep, request, read.whole(record, "step"));
    set(this.lookupTs, request, read.time(record, "ts"));
    set(this.lookupPromptTokens, request, prompt);
    set(this.localHitTokens, request, read.whole(record, "local_hit_tokens"));
    set(this.externalHitTokens, request, read.whole(record, "external_hit_tokens"));
  }

  /** All columns, as long as there are requests. First and last rows, and times no record has, come from the spans. */
  table(): RequestTable {
    const count = this.ids.texts.length;
    return {
      count,
      ids: this.ids.texts.slice(),
      job: indices(this.job, count),
      arrivalTime: times(this.arrivalTime, count),
      takenInTime: times(this.takenInTime, count),
      firstScheduledTime: times(this.firstScheduledTime, count),
      firstTokenTime: times(this.firstTokenTime, count),
      finishedTime: times(this.finishedTime, count),
      timesRecorded: Uint8Array.from(indices(this.timesRecorded, count), (flag) => (flag > 0 ? 1 : 0)),
      firstRow: new Int32Array(count).fill(-1),
      lastRow: new Int32Array(count).fill(-1),
      arrivedRow: indices(this.arrivedRow, count),
      finishedRow: indices(this.finishedRow, count),
      promptTokens: wholes(this.promptTokens, count),
      maxTokens: wholes(this.maxTokens, count),
      outputTokens: wholes(this.outputTokens, count),
      priority: wholes(this.priority, count),
      numPreemptions: wholes(this.numPreemptions, count),
      recomputedTokens: wholes(this.recomputedTokens, count),
      items: wholes(this.items, count),
      itemTokens: wholes(this.itemTokens, count),
      finishReason: indices(this.finishReason, count),
      lookupRow: indices(this.lookupRow, count),
      lookupStep: wholes(this.lookupStep, count),
      lookupTs: times(this.lookupTs, count),
      arrivedStep: wholes(this.arrivedStep, count),
      localHitTokens: wholes(this.localHitTokens, count),
      externalHitTokens: wholes(this.externalHitTokens, count),
      lookupPromptTokens: wholes(this.lookupPromptTokens, count),
      adapter: indices(this.adapter, count),
      tenant: indices(this.tenant, count),
    };
  }

  private setJob(request: number, job: string | null): void {
    if (job) this.job.set(request, this.jobs.index(job));
  }
}

function set(column: WholeColumn | TimeColumn, index: number, value: number | null): void {
  if (value !== null) column.set(index, value);
}

function wholes(column: WholeColumn, count: number): Whole {
  if (column.length < count) column.set(count - 1, MISSING);
  return column.data.slice(0, count);
}

function times(column: TimeColumn, count: number): Float64Array {
  if (column.length < count) column.set(count - 1, Number.NaN);
  return column.data.slice(0, count);
}

function indices(column: IndexColumn, count: number): Int32Array {
  if (column.length < count) column.set(count - 1, -1);
  return column.data.slice(0, count);
}
