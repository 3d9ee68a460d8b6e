/** `admission_outcome` records as columns. */

import { IndexColumn, ListColumn, WholeColumn } from "./columns";
import { FieldReader, type Parsed } from "./fields";
import type { OutcomeTable, Preemption, Refusal } from "./model/outcomes";
import type { LoadNotes } from "./model/trace";
import { Names } from "./names";
import type { RequestBook } from "./requestBook";
import { countedIn, holds, POLICY, refusedWith } from "./wording";

/** Different words of plug-ins that are reasons of their own; further ones are not distinguished. */
const MOST_WORDS = 32;

/** The lists of one outcome, as they are kept in `OutcomeTable.rest`. */
export interface OutcomeRest {
  skippedCounts: [string, number][] | null;
  skipped: Refusal[];
  skippedOmitted: number;
  notScheduledCounts: [string, number][] | null;
  notScheduled: Refusal[];
  notScheduledOmitted: number;
  preemptions: Preemption[];
}

const NUMBERS = [
  "numRequests",
  "needed",
  "free",
  "cachedHits",
  "reserved",
  "watermark",
  "pinned",
  "smallestNeed",
  "wantedTokens",
  "budgetLeft",
  "held",
] as const;

export class OutcomeBook {
  readonly reasons = new Names();
  private readonly kinds = new Names();
  private readonly limits = new Names();
  private readonly row = new IndexColumn();
  private readonly kind = new IndexColumn();
  private readonly reason = new IndexColumn();
  private readonly mainReason = new IndexColumn();
  private readonly request = new IndexColumn();
  private readonly limit = new IndexColumn();
  private readonly numbers = Object.fromEntries(NUMBERS.map((name) => [name, new WholeColumn()])) as Record<
    (typeof NUMBERS)[number],
    WholeColumn
  >;
  private readonly byReason = new ListColumn(true);
  private rest: string[] = [];
  private readonly words = new Set<string>();
  private readonly read: FieldReader;

  constructor(
    notes: LoadNotes,
    private readonly requests: RequestBook,
  ) {
    this.read = new FieldReader("admission_outcome", notes);
  }

  get count(): number {
    return this.row.length;
  }

  /** How far the shared lists reach, for `truncate`. */
  get mark(): number {
    return this.byReason.ids.length;
  }

  /** Take the outcome of a row; gives its place. */
  add(record: Parsed, row: number): number {
    const read = this.read;
    const kv = read.kv(record);
    const reason = this.reasonOf(record);
    const kind = read.text(record, "kind");
    const id = read.text(record, "req_id");
    const rest = this.lists(record);
    const numRequests = read.whole(record, "num_requests");
    const place = this.count;
    this.row.push(row);
    this.kind.push(kind === null ? -1 : this.kinds.index(kind));
    this.reason.push(reason === null ? -1 : this.reasons.index(reason));
    this.request.push(id === null ? -1 : this.requests.request(id));
    this.limit.push(kv?.limit ? this.limits.index(kv.limit) : -1);
    const main = mainReason(reason, numRequests, rest.skippedCounts);
    this.mainReason.push(main === null ? -1 : this.reasons.index(main));
    const values = {
      numRequests,
      needed: kv?.needed,
      free: kv?.free,
      cachedHits: kv?.cachedHits,
      reserved: kv?.reserved,
      watermark: kv?.watermark,
      pinned: kv?.pinned,
      smallestNeed: read.whole(record, "smallest_need"),
      wantedTokens: read.whole(record, "wanted_tokens"),
      budgetLeft: read.whole(record, "budget_left"),
      held: (numRequests ?? 0) + sum(rest.skippedCounts),
    };
    for (const name of NUMBERS) this.numbers[name].push(values[name]);
    this.addByReason(reason, numRequests, rest);
    this.rest.push(isEmpty(rest) ? "" : JSON.stringify(rest));
    return place;
  }

  truncate(count: number, mark: number): void {
    for (const column of [this.row, this.kind, this.reason, this.mainReason, this.request, this.limit]) {
      column.length = count;
    }
    for (const name of NUMBERS) this.numbers[name].length = count;
    this.byReason.truncate(count, mark);
    this.rest.length = count;
  }

  table(): OutcomeTable {
    const columns = Object.fromEntries(NUMBERS.map((name) => [name, this.numbers[name].data]));
    return {
      count: this.count,
      row: this.row.data,
      kind: this.kind.data,
      reason: this.reason.data,
      mainReason: this.mainReason.data,
      request: this.request.data,
      limit: this.limit.data,
      ...(columns as Record<(typeof NUMBERS)[number], Int32Array>),
      byReason: { ...this.byReason.lists(), requests: this.byReason.numbers?.data ?? new Int32Array(0) },
      rest: this.rest,
      kinds: this.kinds.texts,
      limits: this.limits.texts,
    };
  }

  /**
   * Requests held back per reason, each counted once: as in src/tokenyard/trace/held_back.py.
   */
  private addByReason(reason: string | null, numRequests: number | null, rest: OutcomeRest): void {
    const held = new Map<string, number>();
    if (reason !== null && numRequests) {
      const twice = sum((rest.notScheduledCounts ?? []).filter(([name]) => countedIn(name) === reason));
      if (numRequests > twice) held.set(reason, numRequests - twice);
    }
    const stalled = rest.notScheduledCounts?.filter(([name]) => holds(name));
    for (const counts of [rest.skippedCounts, stalled]) {
      for (const [name, count] of counts ?? []) held.set(name, (held.get(name) ?? 0) + count);
    }
    this.byReason.push(
      [...held.keys()].map((name) => this.reasons.index(name)),
      [...held.values()],
    );
  }

  private lists(record: Parsed): OutcomeRest {
    const read = this.read;
    const refusals = (name: string): Refusal[] =>
      read.objects(record, name).map((item) => ({
        reason: this.reasonOf(item) ?? "unknown",
        request: this.requestOf(item, "req_id"),
        wantedTokens: read.whole(item, "wanted_tokens"),
        budgetLeft: read.whole(item, "budget_left"),
        kv: read.kv(item),
      }));
    const preemptions: Preemption[] = [];
    for (const item of read.objects(record, "preemptions")) {
      const request = this.requestOf(item, "req_id");
      if (request === null) continue;
      preemptions.push({
        request,
        forRequest: this.requestOf(item, "for_req_id"),
        numComputedTokens: read.whole(item, "num_computed_tokens"),
        rolledBackTokens: read.whole(item, "rolled_back_tokens"),
        kv: read.kv(item),
      });
    }
    const [skipped, notScheduled] = [refusals("skipped"), refusals("not_scheduled")];
    return {
      skippedCounts: byWord(read.counts(record, "skipped_counts"), skipped),
      skipped,
      skippedOmitted: read.whole(record, "skipped_omitted") ?? 0,
      notScheduledCounts: byWord(read.counts(record, "not_scheduled_counts"), notScheduled),
      notScheduled,
      notScheduledOmitted: read.whole(record, "not_scheduled_omitted") ?? 0,
      preemptions,
    };
  }

  /** What a policy refused is called by the policy's own word, if it has one. */
  private reasonOf(record: Parsed): string | null {
    const reason = this.read.text(record, "reason");
    const word = reason === POLICY ? this.read.text(record, "detail") : null;
    if (!word) return reason;
    if (this.words.size < MOST_WORDS) this.words.add(word);
    return this.words.has(word) ? refusedWith(word) : reason;
  }

  private requestOf(item: Parsed, name: string): number | null {
    const id = this.read.text(item, name);
    return id === null ? null : this.requests.request(id);
  }
}

/** Requests that a policy refused, by its words: as many as are listed with one. */
function byWord(counts: [string, number][] | null, listed: readonly Refusal[]): [string, number][] | null {
  const all = counts?.find(([reason]) => reason === POLICY);
  if (!counts || !all) return counts;
  const words = new Map<string, number>();
  let left = all[1];
  for (const { reason } of listed) {
    if (left <= 0 || !reason.startsWith(refusedWith(""))) continue;
    words.set(reason, (words.get(reason) ?? 0) + 1);
    left -= 1;
  }
  return [
    ...counts.filter((each) => each !== all),
    ...words,
    ...(left > 0 ? [[POLICY, left] as [string, number]] : []),
  ];
}

/** The reason that stands for the step: as in src/tokenyard/trace/held_back.py. */
function mainReason(reason: string | null, numRequests: number | null, skipped: [string, number][] | null) {
  if (numRequests) return reason;
  if (!skipped || skipped.length === 0) return numRequests === null ? reason : null;
  let [best, most] = skipped[0];
  for (const [name, count] of skipped) {
    if (count > most || (count === most && name > best)) [best, most] = [name, count];
  }
  return best;
}

function sum(counts: [string, number][] | null): number {
  return (counts ?? []).reduce((total, [, count]) => total + count, 0);
}

function isEmpty(rest: OutcomeRest): boolean {
  return (
    !rest.skippedCounts &&
    !rest.notScheduledCounts &&
    rest.skipped.length === 0 &&
    rest.notScheduled.length === 0 &&
    rest.preemptions.length === 0 &&
    rest.skippedOmitted === 0 &&
    rest.notScheduledOmitted === 0
  );
}
