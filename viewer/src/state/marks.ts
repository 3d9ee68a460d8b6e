/**
 * Marked moments, such as a deploy or an incident: `marks=1732467000:deploy,90:alert` in the address, and
 * the lines of a markers file: `{"time": "2026-11-24T14:05:00Z", "end": ..., "text": "p99 alarm"}`.
 */

import { computed, signal } from "@preact/signals";
import { openBytes } from "../data/bytes";
import { onClock } from "../data/clock";
import { objectOf } from "../data/fields";
import type { TraceSource } from "../data/model/sources";
import { extra, revision, trace } from "./store";

export interface Mark {
  ts: number;
  /** Where it ends, if it lasted; else `ts`. */
  end: number;
  text: string;
}

/** As the file has them: seconds since 1970, or since the beginning of the run. */
export const fileMarks = signal<readonly Mark[]>([]);

/** Times on the trace's clock. */
export const marks = computed<Mark[]>(() => {
  revision.value;
  const store = trace.value;
  if (!store) return [];
  const at = (value: number) => onClock(store, value);
  const placed = fileMarks.value.map((mark) => ({
    ...mark,
    ts: at(mark.ts),
    end: at(mark.end),
  }));
  return [...marksOf(extra.value["marks"] ?? "", at), ...placed];
});

/** The same at the places of an axis. */
export function placed(all: readonly Mark[], place: (ts: number) => number): Mark[] {
  return all.map((mark) => ({ ...mark, ts: place(mark.ts), end: place(mark.end) }));
}

/** `at`: on the trace's clock. */
export function marksOf(text: string, at: (value: number) => number): Mark[] {
  return text.split(",").flatMap((part) => {
    const found = /^(\d+(?:\.\d+)?)(?::(.*))?$/.exec(part.trim());
    if (!found) return [];
    const ts = at(Number(found[1]));
    return [{ ts, end: ts, text: (found[2] ?? "").slice(0, MOST_TEXT) }];
  });
}

const MOST_TEXT = 60;
const MOST_MARKS = 1_000;

/** The lines that can be read, and how many cannot. */
export function marksOfFile(text: string): { marks: Mark[]; bad: number } {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const marks: Mark[] = [];
  for (const line of lines) {
    const { time, end, text: words } = objectOf(line) ?? {};
    const ts = timeOf(time);
    if (Number.isNaN(ts) || typeof words !== "string") continue;
    const until = timeOf(end);
    marks.push({ ts, end: until >= ts ? until : ts, text: words.slice(0, MOST_TEXT) });
  }
  return { marks: marks.slice(0, MOST_MARKS), bad: lines.length - marks.length };
}

/** A number of seconds, or a time such as `2026-11-24T14:05:00Z`; else NaN. */
function timeOf(value: unknown): number {
  if (typeof value === "number") return value;
  return typeof value === "string" ? Date.parse(value) / 1e3 : Number.NaN;
}

/** Take the moments of a file to the trace that is shown; a sentence says what came of it. */
export async function readMarks(source: TraceSource): Promise<string> {
  try {
    const { stream } = await openBytes(source);
    const { marks: found, bad } = marksOfFile(await new Response(stream).text());
    fileMarks.value = found;
    const wrong = bad > 0 ? `; ${bad} lines say no "time" and "text"` : "";
    return `${found.length} moments are marked${wrong}`;
  } catch (error) {
    return `${source.path} could not be read: ${String(error)}`;
  }
}
