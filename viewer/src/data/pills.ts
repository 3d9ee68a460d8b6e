/** One pill per request of a step, with the labels of document 000. */

import { CLASSIFIER_BLOCK_SIZE } from "./classify";
import { known } from "./columns";
import { jobAndTurn } from "./labels";
import { forEach } from "./lists";
import { type Lists, MISSING, type RequestIndex, type Row } from "./model/columns";
import { SPAN_KINDS } from "./model/lives";
import type { Pill, PillKind, Pills } from "./model/moment";
import type { TraceStore } from "./model/trace";
import { spanAt } from "./spans";
import { blocksFor } from "./stepBook";
import { outcome } from "./verdict";

/** Record of a request at a row, or -1. */
export function recordOf(store: TraceStore, row: Row, request: RequestIndex): number {
  const { records } = store;
  if (!records) return -1;
  const end = records.first[row] + records.num[row];
  for (let record = records.first[row]; record < end; record++) {
    if (records.request[record] === request) return record;
  }
  return -1;
}

/** What a step's pills have in common, looked up once. */
class StepView {
  readonly tokens = new Map<RequestIndex, number>();
  readonly pinned = new Set<number>();
  readonly record = new Map<RequestIndex, number>();
  readonly reasons = new Map<RequestIndex, string>();
  readonly blockSize: number;

  constructor(
    readonly store: TraceStore,
    readonly row: Row,
  ) {
    const { lists, records } = store;
    this.blockSize = store.start?.blockSize || CLASSIFIER_BLOCK_SIZE;
    const { scheduled } = lists;
    for (let i = 0; i < scheduled.counts[row]; i++) {
      const place = scheduled.starts[row] + i;
      this.tokens.set(scheduled.ids[place], scheduled.tokens[place]);
    }
    forEach(lists.pinnedJobs, row, (job) => this.pinned.add(job));
    if (records) {
      const end = records.first[row] + records.num[row];
      for (let record = records.first[row]; record < end; record++) this.record.set(records.request[record], record);
    }
    const held = outcome(store, row);
    for (const refusal of [...(held?.skipped ?? []), ...(held?.notScheduled ?? [])]) {
      if (refusal.request !== null) this.reasons.set(refusal.request, refusal.reason);
    }
    if (held?.request != null && held.reason && held.numRequests) this.reasons.set(held.request, held.reason);
  }

  pill(request: RequestIndex, kind: PillKind): Pill {
    const { store } = this;
    const job = store.requests.job[request];
    const { job: name, turn } = jobAndTurn(store.requests.ids[request], job < 0 ? null : store.jobs.ids[job]);
    const who = turn === null ? name : `${name}, ${turn}`;
    const prefill = this.prefills(request);
    return {
      request,
      kind,
      pinned: job >= 0 && this.pinned.has(job),
      prefill,
      label: `${who} ${kind === "waiting" ? this.need(request) : this.progress(request, kind, prefill)}`.trimEnd(),
      short: who,
      reason: this.reasons.get(request) ?? null,
    };
  }

  /** num_computed_tokens < num_prompt_tokens; without a record, by the tokens that were scheduled so far. */
  private prefills(request: RequestIndex): boolean {
    const { store, row } = this;
    const record = this.record.get(request);
    if (store.records && record !== undefined) {
      const computed = store.records.computedTokens[record];
      const prompt = store.records.promptTokens[record];
      if (computed !== MISSING && prompt !== MISSING) return computed < prompt;
    }
    const span = spanAt(store.spans, request, row);
    if (span < 0) return false;
    return store.spans.kind[span] === SPAN_KINDS.running ? row < store.spans.decodeFrom[span] : true;
  }

  /** `(3) [385, fwd:1542t, 1542t left] hit:5/481(1%)` */
  private progress(request: RequestIndex, kind: PillKind, prefill: boolean): string {
    const fields: string[] = [];
    const record = this.record.get(request) ?? -1;
    const { records } = this.store;
    const blocks = records && record >= 0 ? known(records.blocks, record) : null;
    const computed = records && record >= 0 ? known(records.computedTokens, record) : null;
    const held = blocks ?? (computed === null ? null : blocksFor(computed, this.blockSize));
    if (held !== null) fields.push(`${held}`);
    const forward = this.tokens.get(request);
    if (forward !== undefined) fields.push(`fwd:${forward}t`);
    const left = prefill ? this.left(request, record) : null;
    if (left !== null && left > 0) fields.push(`${left}t left`);
    const age = this.age(request, kind);
    const parts = [age, fields.length > 0 ? `[${fields.join(", ")}]` : "", this.hit(request, record)];
    return parts.filter((part) => part !== "").join(" ");
  }

  /** Prompt tokens left before this step runs. */
  private left(request: RequestIndex, record: number): number | null {
    const { records } = this.store;
    if (!records || record < 0) return null;
    const prompt = known(records.promptTokens, record);
    const computed = known(records.computedTokens, record);
    if (prompt === null || computed === null) return null;
    // A request that is being admitted has computed nothing yet; its hits are about to count.
    const hits = computed === 0 ? this.hitTokens(request, record) : 0;
    return prompt - Math.max(computed, hits);
  }

  /** `(p3)` third step of prefill, `(3)` third of decode. */
  private age(request: RequestIndex, kind: PillKind): string {
    const { spans } = this.store;
    let span = spanAt(spans, request, this.row);
    if (kind === "preempted" && span > spans.starts[request] && spans.kind[span] === SPAN_KINDS.preempted) span -= 1;
    if (span < 0 || spans.kind[span] !== SPAN_KINDS.running) return "";
    const decode = spans.decodeFrom[span];
    if (this.row < decode) return `(p${this.row - spans.first[span] + 1})`;
    return `(${this.row - decode + 1})`;
  }

  /** Prefix hit at the last lookup up to this step, in tokens. */
  private hitTokens(request: RequestIndex, record: number): number {
    const { records, requests } = this.store;
    const cached = records && record >= 0 ? known(records.cachedTokens, record) : null;
    if (cached) return cached;
    if (requests.lookupRow[request] < 0) return 0;
    return Math.max(requests.localHitTokens[request], 0) + Math.max(requests.externalHitTokens[request], 0);
  }

  /** `hit:5/481(1%)` in blocks; nothing if no lookup is known. */
  private hit(request: RequestIndex, record: number): string {
    const prompt = this.promptOf(request, record);
    const { requests, records } = this.store;
    const looked = requests.lookupRow[request] >= 0 || (records && record >= 0 && records.cachedTokens[record] > 0);
    if (!prompt || !looked) return "";
    const hit = this.hitTokens(request, record);
    const [part, whole] = [Math.floor(hit / this.blockSize), blocksFor(prompt, this.blockSize)];
    return `hit:${part}/${whole}(${Math.round((100 * hit) / prompt)}%)`;
  }

  /**
   * `[prefill:521b(8330t), 8410t total, 1% cached]`. What is cached is known once the request is looked up, which may
   * be in a later step: then that lookup tells.
   */
  private need(request: RequestIndex): string {
    const record = this.record.get(request) ?? -1;
    const { records } = this.store;
    const prompt = this.promptOf(request, record);
    if (prompt === null) return "";
    const total = (records && record >= 0 ? known(records.numTokens, record) : null) ?? prompt;
    const cached = Math.min(this.hitTokens(request, record), prompt);
    const left = prompt - cached;
    const percent = prompt > 0 ? Math.round((100 * cached) / prompt) : 0;
    return `[prefill:${blocksFor(left, this.blockSize)}b(${left}t), ${total}t total, ${percent}% cached]`;
  }

  private promptOf(request: RequestIndex, record: number): number | null {
    const { records, requests } = this.store;
    return (
      (records && record >= 0 ? known(records.promptTokens, record) : null) ??
      known(requests.promptTokens, request) ??
      known(requests.lookupPromptTokens, request)
    );
  }
}

/** All pills of a row. */
export function pills(store: TraceStore, row: Row): Pills {
  const view = new StepView(store, row);
  const { lists, steps } = store;
  const scheduled = idsOf(lists.scheduledRunning, row);
  const preempted = idsOf(lists.preempted, row);
  const admitted = new Set<RequestIndex>();
  const running: Pill[] = [];
  const waiting: Pill[] = [];
  const decided = lists.scheduledRunning.counts[row] !== MISSING;
  forEach(lists.running, row, (request) => {
    let kind: PillKind = "running";
    if (preempted.has(request)) kind = "preempted";
    else if (decided && !scheduled.has(request)) kind = "skipped-run";
    running.push(view.pill(request, kind));
  });
  for (const [list, kind] of [
    [lists.scheduledNew, "new"],
    [lists.scheduledResumed, "resumed"],
  ] as const) {
    forEach(list, row, (request) => {
      admitted.add(request);
      running.push(view.pill(request, kind));
    });
  }
  forEach(lists.waiting, row, (request) => {
    if (!admitted.has(request)) waiting.push(view.pill(request, "waiting"));
  });
  return {
    running,
    waiting,
    runningOmitted: Math.max(steps.runningOmitted[row], 0),
    waitingOmitted: Math.max(steps.waitingOmitted[row], 0),
  };
}

function idsOf(lists: Lists, row: Row): Set<RequestIndex> {
  const ids = new Set<RequestIndex>();
  forEach(lists, row, (id) => ids.add(id));
  return ids;
}
