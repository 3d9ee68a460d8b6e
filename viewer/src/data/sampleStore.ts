/** Stores for tests, made from lines as the loader makes them from files. */

import { addRecordNotes, attachRecords } from "./attach";
import { newNotes } from "./notes";
import { RecordBook } from "./recordBook";
import { StepsReader } from "./steps";
import { type StoreInside, storeOf } from "./store";

const encoder = new TextEncoder();

/** A store from the lines of a pair of files. */
export async function storeFrom(lines: readonly string[], requests: readonly string[] = []): Promise<StoreInside> {
  const reader = new StepsReader("steps");
  reader.push(encoder.encode(lines.join("\n")));
  reader.end();
  const store = storeOf(reader.tables(false), "sample", "steps");
  if (requests.length > 0) {
    const notes = newNotes();
    const book = new RecordBook("requests", notes);
    requests.forEach((line, i) => {
      book.line(encoder.encode(line), i, i + 1);
    });
    addRecordNotes(store, [{ notes, lines: requests.length }]);
    await attachRecords(store, [book.chunk(requests.length)]);
  }
  return store;
}

/** A snapshot as other emitters write it. */
export function snapshot(step: number, running: string[], waiting: string[], more: object = {}): string {
  return JSON.stringify({
    event: "step_snapshot",
    step,
    ts: 100 + step,
    num_running: running.length,
    num_waiting: waiting.length,
    running_req_ids: running,
    waiting_req_ids: waiting,
    running_job_ids: running.map(jobOf),
    waiting_job_ids: waiting.map(jobOf),
    total_blocks: 10_318,
    max_num_scheduled_tokens: 2_048,
    max_num_running_reqs: 100,
    ...more,
  });
}

/** A decision: request -> tokens, admitted and preempted ones named. */
export function decision(
  step: number,
  tokens: Record<string, number>,
  admitted: string[] = [],
  preempted: string[] = [],
) {
  return JSON.stringify({
    event: "step_decision",
    step,
    scheduled_new_req_ids: admitted,
    scheduled_resumed_req_ids: [],
    scheduled_running_req_ids: Object.keys(tokens).filter((id) => !admitted.includes(id)),
    preempted_req_ids: preempted,
    num_scheduled_tokens: tokens,
  });
}

function jobOf(id: string): string {
  return id.replace(/_t\d+$/, "");
}
