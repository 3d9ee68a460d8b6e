/** When the blocks of each job were pinned. */

import { IndexColumn } from "./columns";
import { forEach, grouped, sameAsBefore } from "./lists";
import type { SpanSource } from "./spans";

/** Spans of pinned jobs, those of job j from `pinnedStarts[j]` on. */
export function pinnedSpans({ rows, lists, jobs }: SpanSource) {
  const job = new IndexColumn();
  const first = new IndexColumn();
  const last = new IndexColumn();
  const since = new Map<number, number>();
  const close = (pinned: number, row: number) => {
    job.push(pinned);
    first.push(since.get(pinned) ?? row);
    last.push(row);
    since.delete(pinned);
  };
  for (let row = 0; row < rows; row++) {
    if (row > 0 && sameAsBefore(lists.pinnedJobs, row)) continue;
    const now = new Set<number>();
    forEach(lists.pinnedJobs, row, (pinned) => {
      now.add(pinned);
      if (!since.has(pinned)) since.set(pinned, row);
    });
    for (const pinned of [...since.keys()]) if (!now.has(pinned)) close(pinned, row - 1);
  }
  for (const pinned of [...since.keys()]) close(pinned, rows - 1);
  const { starts, order } = grouped(job.data, job.length, jobs);
  return {
    pinnedStarts: starts,
    pinnedFirst: Int32Array.from(order, (place) => first.data[place]),
    pinnedLast: Int32Array.from(order, (place) => last.data[place]),
  };
}
