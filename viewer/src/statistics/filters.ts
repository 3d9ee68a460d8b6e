/** The filter text that leads from a figure to the steps behind it (the language is that of state/filter.ts). */

import type { Range, Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";

/** `step:100..200`, or nothing for the whole trace: figures of a selection lead to steps of the selection. */
export function within(store: TraceStore, range: Range): string {
  if (range.first <= 0 && range.last >= store.rows - 1) return "";
  return ` step:${stepOf(store, range.first)}..${stepOf(store, range.last)}`;
}

function stepOf(store: TraceStore, row: Row): number {
  return store.steps.number[row];
}

/** Shares in percent, the upper end excluded: `budget:40..45`. */
export function shares(key: "budget" | "hit" | "kv", bin: number, bins: number): string {
  return `${key}:${percentOf(bin, bins)}..${percentOf(bin + 1, bins)}`;
}

function percentOf(bin: number, bins: number): number {
  return Math.round((1000 * bin) / bins) / 10;
}

export function reason(name: string): string {
  return `reason:${quoted(name)}`;
}

export function bucket(name: string): string {
  return `bucket:${name}`;
}

export function disagreement(guess: string, recorded: string): string {
  return `disagree:${quoted(`${guess}/${recorded}`)}`;
}

/** A recorded reason comes from the file: it may hold spaces and quotes. */
function quoted(name: string): string {
  return /^[\w/-]+$/.test(name) ? name : `"${name.replaceAll('"', "")}"`;
}
