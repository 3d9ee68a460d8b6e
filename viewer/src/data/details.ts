/** Everything known of one request at one step, and the raw lines of a step. */

import { known } from "./columns";
import { objectOf } from "./fields";
import { plain } from "./labels";
import { filesOf } from "./loading";
import type { RequestIndex, Row } from "./model/columns";
import type { Detail } from "./model/moment";
import type { TraceStore } from "./model/trace";
import { recordOf } from "./pills";
import { linesAfter, linesAt } from "./readAgain";
import { spanAt } from "./spans";
import type { StoreInside } from "./store";
import { outcome, recorded } from "./verdict";

/** Values longer than this are cut. */
const LONGEST_VALUE = 2_000;

/** Where the lines of a row begin in the steps file. */
export function lineOffsets(store: StoreInside, row: Row): number[] {
  const start = store.lineStarts[row];
  const end = row + 1 < store.rows ? store.lineStarts[row + 1] : store.numLines;
  return Array.from(store.lines.subarray(start, end));
}

export async function rawStep(store: TraceStore, row: Row): Promise<{ event: string; json: string }[]> {
  const source = filesOf(store)?.steps;
  if (!source) return [];
  const offsets = lineOffsets(store as StoreInside, row).sort((a, b) => a - b);
  return (await linesAt(source, offsets)).map((line) => {
    const record = objectOf(line);
    const event = typeof record?.["event"] === "string" ? record["event"] : "unreadable";
    return { event, json: record ? JSON.stringify(record, null, 1) : line };
  });
}

export async function details(store: TraceStore, row: Row, request: RequestIndex): Promise<Detail[]> {
  const found: Detail[] = [];
  const add = (from: string, name: string, value: unknown) => {
    if (value !== null && value !== undefined) found.push({ name, value: asText(value), from });
  };
  const { requests, steps, jobs } = store;
  const id = requests.ids[request];
  add("derived", "req_id", id);
  if (requests.job[request] >= 0) add("derived", "job_id", jobs.ids[requests.job[request]]);
  add("derived", "step", steps.number[row]);
  decisionDetails(store, row, request, add);
  const record = await recordLine(store as StoreInside, row, request);
  if (record) for (const [name, value] of Object.entries(record)) add("request record", name, value);
  else recordColumns(store, row, request, add);
  lookupDetails(store, request, add);
  lifeDetails(store, request, add);
  return found;
}

type Add = (from: string, name: string, value: unknown) => void;

function decisionDetails(store: TraceStore, row: Row, request: RequestIndex, add: Add): void {
  const { scheduled } = store.lists;
  for (let i = 0; i < scheduled.counts[row]; i++) {
    const place = scheduled.starts[row] + i;
    if (scheduled.ids[place] === request) add("decision", "num_scheduled_tokens", scheduled.tokens[place]);
  }
  const span = spanAt(store.spans, request, row);
  if (span >= 0) add("derived", "steps in this queue", row - store.spans.first[span] + 1);
  const truth = outcome(store, row);
  if (!truth) return;
  for (const refusal of [...truth.skipped, ...truth.notScheduled]) {
    if (refusal.request !== request) continue;
    add("outcome", "reason", refusal.reason);
    add("outcome", "wanted_tokens", refusal.wantedTokens);
    add("outcome", "budget_left", refusal.budgetLeft);
    add("outcome", "kv", refusal.kv);
  }
  if (truth.request === request) {
    add("outcome", "reason", truth.reason);
    add("outcome", "numbers", recorded(store, row)?.numbers);
  }
  for (const victim of truth.preemptions) {
    if (victim.request !== request) continue;
    add("outcome", "preempted for", victim.forRequest === null ? null : store.requests.ids[victim.forRequest]);
    add("outcome", "num_computed_tokens lost", victim.numComputedTokens);
    add("outcome", "rolled_back_tokens", victim.rolledBackTokens);
  }
}

/** The line of its record, whole: fields that no column holds are in it. */
async function recordLine(
  store: StoreInside,
  row: Row,
  request: RequestIndex,
): Promise<Record<string, unknown> | null> {
  const { records, recordOffset } = store;
  const source = filesOf(store)?.requests;
  const record = recordOf(store, row, request);
  if (!records || !recordOffset || !source || record < 0 || Number.isNaN(recordOffset[row])) return null;
  const lines = await linesAfter(source, recordOffset[row], records.num[row] + 2).catch(() => []);
  for (const line of lines) {
    const fields = objectOf(line);
    if (fields?.["req_id"] === store.requests.ids[request] && fields["step"] === store.steps.number[row]) {
      delete fields["req_id"];
      delete fields["step"];
      return fields;
    }
  }
  return null;
}

function recordColumns(store: TraceStore, row: Row, request: RequestIndex, add: Add): void {
  const { records } = store;
  const record = recordOf(store, row, request);
  if (!records || record < 0) return;
  add("request record", "status", records.statuses[records.status[record]]);
  for (const [name, column] of [
    ["num_prompt_tokens", records.promptTokens],
    ["num_tokens", records.numTokens],
    ["num_output_tokens", records.outputTokens],
    ["num_computed_tokens", records.computedTokens],
    ["num_cached_tokens", records.cachedTokens],
    ["num_preemptions", records.preemptions],
    ["num_blocks", records.blocks],
  ] as const) {
    add("request record", name, known(column, record));
  }
}

function lookupDetails({ requests, steps }: TraceStore, request: RequestIndex, add: Add): void {
  const row = requests.lookupRow[request];
  if (row < 0) return;
  add("lookup", "looked up at step", steps.number[row]);
  add("lookup", "local_hit_tokens", known(requests.localHitTokens, request));
  add("lookup", "external_hit_tokens", known(requests.externalHitTokens, request));
  add("lookup", "total_prompt_tokens", known(requests.lookupPromptTokens, request));
}

function lifeDetails({ requests, finishReasons }: TraceStore, request: RequestIndex, add: Add): void {
  const time = (value: number) => (Number.isNaN(value) ? null : value);
  add("life", "arrival_time", time(requests.arrivalTime[request]));
  add("life", "first_scheduled_time", time(requests.firstScheduledTime[request]));
  add("life", "first_token_time", time(requests.firstTokenTime[request]));
  add("life", "finished_time", time(requests.finishedTime[request]));
  if (requests.finishReason[request] >= 0) add("life", "finish_reason", finishReasons[requests.finishReason[request]]);
  add("life", "num_output_tokens at the end", known(requests.outputTokens, request));
  add("life", "num_preemptions at the end", known(requests.numPreemptions, request));
}

function asText(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return cut(plain(text), LONGEST_VALUE);
}

function cut(text: string, longest: number): string {
  return text.length <= longest ? text : `${text.slice(0, longest)}… (${text.length} characters, cut)`;
}
