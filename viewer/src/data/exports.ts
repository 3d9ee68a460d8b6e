/** Ways out: the lines of chosen steps as they are in the file, and a table of steps. */

import { type Cell, csvLine } from "../export/csv";
import { known, knownTime } from "./columns";
import { lineOffsets } from "./details";
import { filesOf } from "./loading";
import type { Range, Row } from "./model/columns";
import type { TraceStore } from "./model/trace";
import { copyLines, linesAfter } from "./readAgain";
import { inSlices } from "./slices";
import type { StoreInside } from "./store";
import { recorded, verdict } from "./verdict";

/** The lines of the given rows, `trace_start` in front. */
export async function exportJsonl(store: TraceStore, ranges: readonly Range[], signal?: AbortSignal): Promise<Blob> {
  const source = filesOf(store)?.steps;
  if (!source) return new Blob([], { type: "application/jsonl" });
  const offsets: number[] = [];
  for (const { first, last } of ranges) {
    await inSlices(first, last, (row) => offsets.push(...lineOffsets(store as StoreInside, row)), signal);
  }
  const [head] = await linesAfter(source, 0, 1);
  const parts = await copyLines(source, offsets, signal);
  if (store.start && head) parts.unshift(`${head}\n`);
  return new Blob(parts, { type: "application/jsonl" });
}

const CSV_COLUMNS: readonly (readonly [string, (store: TraceStore, row: Row) => Cell])[] = [
  ["step", ({ steps }, row) => steps.number[row]],
  ["ts", ({ steps }, row) => knownTime(steps.ts, row)],
  ["step_seconds", ({ steps }, row) => knownTime(steps.stepSeconds, row)],
  ["num_running", ({ steps }, row) => known(steps.numRunning, row)],
  ["num_waiting", ({ steps }, row) => known(steps.numWaiting, row)],
  ["new", ({ steps }, row) => known(steps.numNew, row)],
  ["resumed", ({ steps }, row) => known(steps.numResumed, row)],
  ["preempted", ({ steps }, row) => known(steps.numPreempted, row)],
  ["unadmitted", ({ steps }, row) => known(steps.unadmitted, row)],
  ["tokens", ({ steps }, row) => known(steps.tokenSum, row)],
  ["token_budget", ({ steps }, row) => known(steps.tokenBudget, row)],
  ["recomputed_tokens", ({ steps }, row) => known(steps.recomputedTokens, row)],
  ["sampled_tokens", ({ steps }, row) => known(steps.sampledTokens, row)],
  ["free_blocks", ({ steps }, row) => known(steps.freeBlocks, row)],
  ["total_blocks", ({ steps }, row) => known(steps.totalBlocks, row)],
  ["pinned_blocks", ({ steps }, row) => known(steps.pinnedBlocks, row)],
  ["cpu_free_blocks", ({ steps }, row) => known(steps.cpuFreeBlocks, row)],
  ["cpu_total_blocks", ({ steps }, row) => known(steps.cpuTotalBlocks, row)],
  ["effective_free", ({ steps }, row) => known(steps.effectiveFree, row)],
  ["min_need", ({ steps }, row) => known(steps.minNeed, row)],
  ["bucket", (store, row) => verdict(store, row).bucket],
  ["reason", (store, row) => verdict(store, row).reason],
  ["recorded_reason", (store, row) => recorded(store, row)?.reason ?? null],
  ["held", (store, row) => recorded(store, row)?.held ?? null],
];

/** One line per row. */
export async function exportCsv(store: TraceStore, ranges: readonly Range[], signal?: AbortSignal): Promise<Blob> {
  const lines = [csvLine(CSV_COLUMNS.map(([name]) => name))];
  for (const { first, last } of ranges) {
    await inSlices(first, last, (row) => lines.push(csvLine(CSV_COLUMNS.map(([, of]) => of(store, row)))), signal);
  }
  return new Blob(lines, { type: "text/csv" });
}
