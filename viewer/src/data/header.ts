/** The one-line summary of a run: each token from the field that document 000 names for it. */

import { CLASSIFIER_BLOCK_SIZE } from "./classify";
import { known } from "./columns";
import { count, gigabytes, plain, shortCount } from "./labels";
import { MISSING } from "./model/columns";
import type { HeaderToken } from "./model/moment";
import type { TraceStart, TraceStore } from "./model/trace";
import { partial } from "./partial";

/** 16 tokens x 32 layers x 8 KV heads x 128 dimensions x key and value x 2 bytes (Llama-3.1-8B). */
export const DEFAULT_BYTES_PER_BLOCK = 16 * 32 * 8 * 128 * 2 * 2;

const GPU_BY_BLOCKS: readonly (readonly [number, string])[] = [
  [8_000, "5090"],
  [15_000, "A100-40GB"],
  [35_000, "H100/A100-80GB"],
  [60_000, "H200-141GB"],
];

/** The GPU that usually has so many blocks, or `unknown`. */
export function inferGpu(totalBlocks: number | null): string {
  if (totalBlocks === null) return "unknown";
  return GPU_BY_BLOCKS.find(([limit]) => totalBlocks < limit)?.[1] ?? "unknown";
}

/** Bytes of a KV block, and whether the trace said so. */
export function bytesPerBlock(start: TraceStart | null): { bytes: number; said: boolean } {
  if (start?.bytesPerBlock) return { bytes: start.bytesPerBlock, said: true };
  const size = start?.blockSize || CLASSIFIER_BLOCK_SIZE;
  return { bytes: Math.floor((DEFAULT_BYTES_PER_BLOCK * size) / CLASSIFIER_BLOCK_SIZE), said: false };
}

export function header(store: TraceStore): HeaderToken[] {
  const { steps, rows, start } = store;
  const tokens: HeaderToken[] = [];
  const add = (kind: HeaderToken["kind"], text: string, title: string) => tokens.push({ kind, text, title });
  add("policy", plain(store.policy).toUpperCase(), "The scheduling policy, from the first step.");
  const blocks = rows > 0 ? known(steps.totalBlocks, 0) : null;
  if (start?.gpu) add("gpu", plain(start.gpu).toUpperCase(), "The GPU, as the trace says.");
  else add("gpu", inferGpu(blocks), "Guessed from the number of KV blocks.");
  if (start?.model) add("model", plain(start.model), "The model, as the trace says.");
  memoryTokens(store, blocks, add);
  // Where requests belong to no job, none is worth a word.
  if (store.jobs.count > 0 || store.requests.count === 0)
    add("jobs", `${count(store.jobs.count)} jobs`, "Distinct jobs. A job may have several requests: its turns.");
  const requests = store.requests.count;
  if (requests > 0) {
    add(
      "request-count",
      `${count(requests)} ${requests === 1 ? "request" : "requests"}`,
      "Distinct requests that the steps name.",
    );
  }
  if (rows > 0) {
    add(
      "steps",
      `steps ${steps.number[0]}–${steps.number[rows - 1]} (${count(rows)})`,
      "First and last step; in brackets how many the trace holds, fewer if it is sampled.",
    );
  }
  const seconds = rows > 0 ? steps.ts[rows - 1] - steps.ts[0] : Number.NaN;
  if (!Number.isNaN(seconds)) add("seconds", `${seconds.toFixed(1)}s`, "From the first step to the last.");
  const most = maxRunning(store);
  if (most !== null) add("max-running", `maxRun:${most}`, "Most requests running at once.");
  if (store.records) {
    const title = "Records of the requests file: one for each request in each step that it waited or ran in.";
    add("records", `${shortCount(store.records.count)} records`, title);
  }
  const ends = partial(store);
  if (ends) add("partial", "partial", ends);
  add("source", store.source, store.source);
  return tokens;
}

function memoryTokens(
  store: TraceStore,
  blocks: number | null,
  add: (kind: HeaderToken["kind"], text: string, title: string) => void,
): void {
  const { bytes, said } = bytesPerBlock(store.start);
  const assumed = said ? `${count(bytes)} bytes per block.` : "Assumes 2 MB per block of 16 tokens (Llama-3.1-8B).";
  if (blocks !== null) add("kv", `KV:${blocks}blk(${gigabytes(blocks * bytes)})`, `KV blocks on the GPU. ${assumed}`);
  const dram = store.rows > 0 ? known(store.steps.cpuTotalBlocks, 0) : null;
  if (dram) add("dram", `DRAM:${dram}blk(${gigabytes(dram * bytes)})`, `Blocks of the CPU offload tier. ${assumed}`);
}

function maxRunning({ steps, rows }: TraceStore): number | null {
  let most = MISSING;
  for (let row = 0; row < rows; row++) if (steps.numRunning[row] > most) most = steps.numRunning[row];
  return most === MISSING ? null : most;
}
