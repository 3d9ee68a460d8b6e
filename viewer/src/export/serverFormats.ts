/** What only the server can make, with the exporters of the package: of the whole trace, whatever is filtered. */

import type { TraceStore } from "../data/model/trace";
import { writeHash } from "../state/hash";
import { currentState } from "../state/restore";

export type ServerFormat = "html" | "perfetto";

interface Entry {
  words: string;
  kind: string;
  format: ServerFormat;
  ending: string;
  note: string;
}

export const SERVER_FORMATS: readonly Entry[] = [
  {
    words: "Page",
    kind: "HTML",
    format: "html",
    ending: ".html",
    note: "the whole trace in one page, to mail; it opens at what is shown here",
  },
  {
    words: "Timeline",
    kind: "Perfetto",
    format: "perfetto",
    ending: ".pftrace",
    note: "the whole trace, for ui.perfetto.dev",
  },
];

/** Why there is none of a trace that no server gave. */
export function notServed(format: ServerFormat): string {
  return `only where tokenyard view serves the trace; else: tokenyard export TRACE --${format} FILE`;
}

export async function fromServer(store: TraceStore, format: ServerFormat, signal: AbortSignal): Promise<Blob> {
  const query = new URLSearchParams({ path: store.source, format, requests: store.records ? "1" : "0" });
  // Who opens the page sees what is seen here.
  if (format === "html") query.set("state", writeHash({ ...currentState(null, null), live: "" }));
  const answer = await fetch(`/api/export?${query}`, { signal });
  if (!answer.ok) throw new Error(await problemOf(answer));
  return answer.blob();
}

/** The server's refusals say in JSON what to do. */
export async function problemOf(answer: Response): Promise<string> {
  try {
    const { error } = (await answer.json()) as { error: { field: string; fix: string } };
    return `${error.field}: ${error.fix}`;
  } catch {
    return `the server answers ${answer.status}`;
  }
}
