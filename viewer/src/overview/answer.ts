/** What is wrong, as the package says it: asked of the server, or held by a page that was exported. Nothing is decided here. */

import type { Range } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { isServed } from "../export/notebook";
import { problemOf } from "../export/serverFormats";

export const ANSWER_ID = "tokenyard-answer";
/** Of a dropped file, which no server can be asked about. */
export const HOW_TO_GET = "What is wrong, and what would help: tokenyard report TRACE, or open it with tokenyard view.";

/** The requests that had what was short: `kind` is the filter's key, but for `length`. */
interface Whose {
  kind: "request" | "job" | "tenant" | "lora" | "user" | "length";
  name: string;
}

interface Cause {
  code: string;
  since_ts: number | null;
  until_ts: number | null;
  whose: Whose | null;
  sure: string;
  sentence: string;
}

interface Remedy {
  code: string;
  title: string;
  evidence: string;
  price: string;
  is_tried: boolean;
}

/** As much of `answer` (docs/report.md) as is shown. */
export interface Answer {
  code: string;
  sentence: string;
  causes: Cause[];
  remedies: Remedy[];
}

/** Null: there is none to be had of this trace, or of this part of it. */
export async function answerTo(store: TraceStore, range: Range, signal: AbortSignal): Promise<Answer | null> {
  const isWhole = range.first === 0 && range.last === store.rows - 1;
  if (!isServed(store)) return isWhole ? held(store) : null;
  const query = new URLSearchParams({ path: store.source });
  if (!isWhole) {
    query.set("from", `${store.steps.number[range.first]}`);
    query.set("to", `${store.steps.number[range.last]}`);
  }
  const response = await fetch(`/api/answer?${query}`, { signal });
  if (!response.ok) throw new Error(await problemOf(response));
  return ((await response.json()) as { answer: Answer }).answer;
}

/** Of the trace in this page, not of one that was dropped on it. */
function held(store: TraceStore): Answer | null {
  const text = document.getElementById(ANSWER_ID)?.textContent;
  const name = document.getElementById("tokenyard-trace")?.dataset["name"];
  return text && name === store.name ? (JSON.parse(text) as Answer) : null;
}

/** The filter that means some requests. */
export function filterOf({ kind, name }: Whose): string {
  if (kind === "length") return `prompt:${name.replaceAll(",", "")}..`;
  return `${kind === "request" ? "req" : kind}:"${name}"`;
}
