/** Whole steps to columns: the counts of each step, as src/tokenyard/trace/steps.py takes them. */

import { CLASSIFIER_BLOCK_SIZE } from "./classify";
import { IndexColumn, ListColumn, TimeColumn, WholeColumn } from "./columns";
import { FieldReader, type Parsed } from "./fields";
import type { Step } from "./joiner";
import type { Whole } from "./model/columns";
import type { StepColumns, StepLists } from "./model/steps";
import type { LoadNotes } from "./model/trace";
import { OutcomeBook } from "./outcomeBook";
import { RequestBook } from "./requestBook";

/** Column -> field of the snapshot. */
const SNAPSHOT_FIELDS = {
  freeBlocks: "free_blocks",
  totalBlocks: "total_blocks",
  numPinned: "num_pinned",
  pinnedBlocks: "pinned_blocks",
  cpuFreeBlocks: "cpu_free_blocks",
  cpuTotalBlocks: "cpu_total_blocks",
  tokenBudget: "max_num_scheduled_tokens",
  maxRunning: "max_num_running_reqs",
  gpuCachedBlocks: "gpu_cached_blocks",
  skippedWaiting: "num_skipped_waiting",
  runningOmitted: "running_req_ids_omitted",
  waitingOmitted: "waiting_req_ids_omitted",
} as const;

type WholeName = Exclude<
  keyof StepColumns,
  "ts" | "stepSeconds" | "completedTs" | "outcome" | "bucket" | "stepReason" | "shown"
>;
const WHOLE_NAMES: readonly WholeName[] = [
  "number",
  "freeBlocks",
  "totalBlocks",
  "numRunning",
  "numWaiting",
  "numPinned",
  "pinnedBlocks",
  "cpuFreeBlocks",
  "cpuTotalBlocks",
  "tokenBudget",
  "maxRunning",
  "gpuCachedBlocks",
  "skippedWaiting",
  "runningOmitted",
  "waitingOmitted",
  "numNew",
  "numResumed",
  "numPreempted",
  "tokenSum",
  "recomputedTokens",
  "runningConsumed",
  "minNeed",
  "sampledTokens",
  "draftTokens",
  "acceptedTokens",
  "unadmitted",
  "effectiveFree",
];
const EMPTY: Parsed = {};
/** In the order in which they count. */
const STREAMS = ["paused_req_ids", "resumed_req_ids", "first_token_req_ids"] as const;

/** Blocks that `tokens` fill, the last one perhaps partly. */
export function blocksFor(tokens: number, blockSize: number): number {
  return tokens > 0 ? Math.ceil(tokens / blockSize) : 0;
}

export class StepBook {
  readonly requests: RequestBook;
  readonly outcomes: OutcomeBook;
  policy: string | null = null;
  /** Tokens per block; to be set before the first step, if the trace says it. */
  blockSize = CLASSIFIER_BLOCK_SIZE;
  /** Whose tokens begin and pause is told of every step. */
  everyStep = true;
  /** Tokens were sampled; a first one was told when it came. */
  private hasCompleted = false;
  private hasSampled = false;
  private hasTold = false;
  readonly lineStarts = new WholeColumn();
  readonly lines = new TimeColumn();
  private readonly wholes = Object.fromEntries(WHOLE_NAMES.map((name) => [name, new WholeColumn()])) as Record<
    WholeName,
    WholeColumn
  >;
  private readonly ts = new TimeColumn();
  private readonly stepSeconds = new TimeColumn();
  private readonly completedTs = new TimeColumn();
  private readonly outcome = new IndexColumn();
  private readonly listColumns = {
    running: new ListColumn(),
    waiting: new ListColumn(),
    scheduledNew: new ListColumn(),
    scheduledResumed: new ListColumn(),
    scheduledRunning: new ListColumn(),
    preempted: new ListColumn(),
    pinnedJobs: new ListColumn(),
    scheduled: new ListColumn(true),
    streams: new ListColumn(true),
  };
  private readonly snapshots: FieldReader;
  private readonly decisions: FieldReader;
  private readonly completions: FieldReader;
  /** Tokens of each request in the step at hand, and the step in which they were set. */
  private tokens = new Map<number, number>();

  constructor(notes: LoadNotes) {
    this.requests = new RequestBook(notes);
    this.outcomes = new OutcomeBook(notes, this.requests);
    this.snapshots = new FieldReader("step_snapshot", notes);
    this.decisions = new FieldReader("step_decision", notes);
    this.completions = new FieldReader("step_completed", notes);
  }

  get rows(): number {
    return this.ts.length;
  }

  /** Take a step. */
  add(step: Step): void {
    const row = this.rows;
    const { snapshots: read, decisions } = this;
    const snapshot = step.snapshot ?? EMPTY;
    const decision = step.decision ?? EMPTY;
    for (const record of step.arrived) this.requests.arrived(record, row);
    for (const record of step.arrivedAfter) this.requests.arrived(record, -1);
    for (const record of step.lookups) this.requests.lookedUp(record, row);
    for (const record of step.finished) this.requests.finished(record, row);
    this.policy ??= read.text(snapshot, "policy") ?? decisions.text(decision, "policy");
    this.wholes.number.push(step.number);
    this.ts.push(read.time(snapshot, "ts") ?? decisions.time(decision, "ts"));
    for (const [column, field] of Object.entries(SNAPSHOT_FIELDS)) {
      this.wholes[column as keyof typeof SNAPSHOT_FIELDS].push(read.whole(snapshot, field));
    }
    const running = this.queue(snapshot, "running", row);
    this.queue(snapshot, "waiting", row);
    this.decision(decision, running);
    this.wholes.minNeed.push(null);
    this.wholes.unadmitted.push(null);
    this.wholes.effectiveFree.push(null);
    this.completion(step.completed ?? EMPTY);
    this.outcome.push(step.outcome === null ? -1 : this.outcomes.add(step.outcome, row));
    this.lineStarts.push(this.lines.length);
    for (const line of step.lines) this.lines.push(line);
  }

  /** One queue's list and length; gives the list. */
  private queue(snapshot: Parsed, queue: "running" | "waiting", row: number): number[] | null {
    const read = this.snapshots;
    const ids = read.texts(snapshot, `${queue}_req_ids`) as string[] | null;
    const requests = ids === null ? null : ids.map((id) => this.requests.request(id));
    this.listColumns[queue].push(requests);
    const jobs = read.texts(snapshot, `${queue}_job_ids`, true);
    if (requests !== null) this.requests.jobsOf(requests, jobs);
    const counted = read.whole(snapshot, `num_${queue}`);
    const omitted = this.wholes[queue === "running" ? "runningOmitted" : "waitingOmitted"].get(row);
    const length = requests === null ? null : requests.length + Math.max(omitted, 0);
    this.wholes[queue === "running" ? "numRunning" : "numWaiting"].push(counted ?? length);
    if (queue === "running") {
      const pinned = read.texts(snapshot, "pinned_job_ids", true);
      const named = pinned?.filter((id) => id !== null) ?? null;
      this.listColumns.pinnedJobs.push(named === null ? null : named.map((id) => this.requests.jobs.index(id)));
    }
    return requests;
  }

  private decision(decision: Parsed, running: number[] | null): void {
    const read = this.decisions;
    const list = (name: string): number[] | null => {
      const ids = read.texts(decision, name) as string[] | null;
      return ids === null ? null : ids.map((id) => this.requests.request(id));
    };
    const omitted = (name: string): number => read.whole(decision, `${name}_omitted`) ?? 0;
    const lists = {
      scheduledNew: list("scheduled_new_req_ids"),
      scheduledResumed: list("scheduled_resumed_req_ids"),
      scheduledRunning: list("scheduled_running_req_ids"),
      preempted: list("preempted_req_ids"),
    };
    for (const name of ["scheduledNew", "scheduledResumed", "scheduledRunning", "preempted"] as const) {
      this.listColumns[name].push(lists[name]);
    }
    const newOmitted = omitted("scheduled_new_req_ids");
    const resumedOmitted = omitted("scheduled_resumed_req_ids");
    const incomplete = newOmitted + resumedOmitted + omitted("scheduled_running_req_ids") > 0;
    this.wholes.numNew.push(lists.scheduledNew === null ? null : lists.scheduledNew.length + newOmitted);
    this.wholes.numResumed.push(
      lists.scheduledResumed === null ? null : lists.scheduledResumed.length + resumedOmitted,
    );
    this.wholes.numPreempted.push(lists.preempted?.length);
    this.wholes.recomputedTokens.push(read.whole(decision, "recomputed_tokens"));
    const tokens = read.counts(decision, "num_scheduled_tokens");
    const total = read.whole(decision, "total_scheduled_tokens");
    this.wholes.tokenSum.push(
      tokens === null || incomplete ? total : tokens.reduce((all, [, count]) => all + count, 0),
    );
    this.scheduled(tokens);
    const consumed = read.whole(decision, "running_consumed_blocks");
    this.wholes.runningConsumed.push(consumed ?? this.consumed(tokens, lists.scheduledRunning ?? running));
  }

  private scheduled(tokens: [string, number][] | null): void {
    this.tokens.clear();
    if (tokens === null) {
      this.listColumns.scheduled.push(null);
      return;
    }
    const ids = tokens.map(([id]) => this.requests.request(id));
    const counts = tokens.map(([, count]) => count);
    for (let i = 0; i < ids.length; i++) this.tokens.set(ids[i], counts[i]);
    this.listColumns.scheduled.push(ids, counts);
  }

  /** Blocks that the running requests' prefill takes: one token is decode and does not count. */
  private consumed(tokens: [string, number][] | null, running: number[] | null): number | null {
    if (tokens === null || running === null) return null;
    let blocks = 0;
    for (const request of running) {
      const count = this.tokens.get(request) ?? 0;
      if (count > 1) blocks += blocksFor(count, this.blockSize);
    }
    return blocks;
  }

  /** An open request without a first token is known to have none. */
  get tellsTokens(): boolean {
    return this.hasTold || !(this.hasSampled || (this.requests.hasEnded && !this.hasCompleted));
  }

  private completion(completed: Parsed): void {
    const read = this.completions;
    const ts = read.time(completed, "ts");
    this.completedTs.push(ts);
    const [ids, kinds]: [number[], number[]] = [[], []];
    STREAMS.forEach((name, kind) => {
      for (const id of (this.everyStep && read.texts(completed, name)) || []) {
        ids.push(this.requests.request(id as string));
        kinds.push(kind);
        if (kind === 2 && ts !== null) this.requests.began(ids[ids.length - 1], ts);
      }
    });
    this.listColumns.streams.push(ids, kinds);
    this.hasCompleted ||= ts !== null;
    this.hasSampled ||= (read.whole(completed, "num_sampled_tokens") ?? 0) > 0;
    this.hasTold ||= kinds.includes(2);
    this.stepSeconds.push(read.time(completed, "step_seconds"));
    this.wholes.sampledTokens.push(read.whole(completed, "num_sampled_tokens"));
    const accepted = read.wholes(completed, "num_accepted_tokens_per_pos");
    this.wholes.draftTokens.push(read.whole(completed, "num_draft_tokens"));
    this.wholes.acceptedTokens.push(accepted?.reduce((sum, count) => sum + count, 0) ?? null);
  }

  // ---- handing over

  /** Where everything stands, so that steps added later can be taken back. */
  mark(): () => void {
    const rows = this.rows;
    const lines = this.lines.length;
    const outcomes = [this.outcomes.count, this.outcomes.mark] as const;
    const ids = Object.values(this.listColumns).map((list) => list.ids.length);
    return () => {
      for (const name of WHOLE_NAMES) this.wholes[name].length = rows;
      for (const column of [this.ts, this.stepSeconds, this.completedTs, this.outcome, this.lineStarts]) {
        column.length = rows;
      }
      this.lines.length = lines;
      Object.values(this.listColumns).forEach((list, i) => {
        list.truncate(rows, ids[i]);
      });
      this.outcomes.truncate(...outcomes);
    };
  }

  /** The columns as they are, perhaps with room at their ends. */
  steps(): StepColumns {
    const rows = this.rows;
    const wholes = Object.fromEntries(WHOLE_NAMES.map((name) => [name, this.wholes[name].data]));
    return {
      ...(wholes as Record<WholeName, Whole>),
      ts: this.ts.data,
      stepSeconds: this.stepSeconds.data,
      completedTs: this.completedTs.data,
      outcome: this.outcome.data,
      bucket: new Uint8Array(rows),
      stepReason: new Uint8Array(rows),
      shown: new Uint8Array(rows),
    };
  }

  lists(): StepLists {
    const lists = this.listColumns;
    return {
      running: lists.running.lists(),
      waiting: lists.waiting.lists(),
      scheduledNew: lists.scheduledNew.lists(),
      scheduledResumed: lists.scheduledResumed.lists(),
      scheduledRunning: lists.scheduledRunning.lists(),
      preempted: lists.preempted.lists(),
      pinnedJobs: lists.pinnedJobs.lists(),
      scheduled: { ...lists.scheduled.lists(), tokens: lists.scheduled.numbers?.data ?? new Int32Array(0) },
      streams: { ...lists.streams.lists(), kinds: lists.streams.numbers?.data ?? new Int32Array(0) },
    };
  }
}
