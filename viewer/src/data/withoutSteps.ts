/** A requests file alone: snapshots of the queues, made from the records of each step. */

import type { Parsed } from "./fields";
import { RECORD_FLAGS } from "./model/requests";
import type { RecordChunk } from "./recordBook";

/** One snapshot per step, in the order of the file. A step that the seam of two parts cuts is one step. */
export function* snapshotsOf(chunks: readonly RecordChunk[]): Generator<Parsed> {
  let open: ReturnType<typeof newSnapshot> | null = null;
  for (const chunk of chunks) {
    let record = 0;
    for (let group = 0; group < chunk.groups.count; group++) {
      const step = chunk.groups.step[group];
      if (open === null || open.step !== step) {
        if (open) yield open;
        open = newSnapshot(step, chunk.groups.ts[group]);
      }
      const end = record + chunk.groups.size[group];
      for (; record < end; record++) add(open, chunk, record);
    }
  }
  if (open) yield open;
}

function newSnapshot(step: number, ts: number) {
  return {
    event: "step_snapshot",
    step,
    ts: Number.isNaN(ts) ? null : ts,
    running_req_ids: [] as string[],
    running_job_ids: [] as (string | null)[],
    waiting_req_ids: [] as string[],
    waiting_job_ids: [] as (string | null)[],
  };
}

function add(snapshot: ReturnType<typeof newSnapshot>, chunk: RecordChunk, record: number): void {
  const request = chunk.request[record];
  if (chunk.flags[record] & RECORD_FLAGS.running) {
    snapshot.running_req_ids.push(chunk.ids[request]);
    snapshot.running_job_ids.push(chunk.jobs[request]);
  } else if (chunk.flags[record] & RECORD_FLAGS.waiting) {
    snapshot.waiting_req_ids.push(chunk.ids[request]);
    snapshot.waiting_job_ids.push(chunk.jobs[request]);
  }
}
