/**
 * A trace inside this page: its files, gzipped and in base64, in an inert script tag, which also rules out that the data
 * ends the tag. The format: a JSON object {"version": 1, "name", "steps", "requests"?}; `steps` and `requests` are base64
 * of gzipped JSON lines.
 */

import type { TraceFiles, TraceSource } from "./model";

/** Id of the script tag (type "application/json"). */
export const EMBEDDED_ID = "tokenyard-trace";

export async function embedded(text: string): Promise<TraceFiles> {
  const held = JSON.parse(text) as { name?: unknown; steps?: unknown; requests?: unknown };
  const name = typeof held.name === "string" ? held.name : "trace";
  return {
    name,
    steps: sourceOf(held.steps, `${name}.steps.jsonl.gz`),
    requests: sourceOf(held.requests, `${name}.requests.jsonl.gz`),
  };
}

function sourceOf(base64: unknown, path: string): TraceSource | null {
  if (typeof base64 !== "string" || base64 === "") return null;
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { kind: "bytes", bytes, path };
}
