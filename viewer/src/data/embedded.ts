/**
 * A trace inside this page, as `tokenyard export --html` puts it there: an inert script tag (id EMBEDDED_ID) whose text is
 * base64 of one gzip stream: the steps file, then, if there is a requests file, a line with a record separator alone and
 * the requests file. Base64 also rules out that the data ends the tag.
 */

import { unpacked } from "./bytes";
import type { EmbeddedNames, TraceFiles, TraceSource } from "./model/sources";

export const EMBEDDED_ID = "tokenyard-trace";

const NEWLINE = 10;
const RECORD_SEPARATOR = 0x1e;

export async function embedded(base64: string, names: EmbeddedNames): Promise<TraceFiles> {
  const text = atob(base64.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const bytes = new Uint8Array(await new Response(unpacked(new Blob([packed]).stream())).arrayBuffer());
  const cut = separator(bytes);
  const first = partOf(bytes.subarray(0, cut), names.steps);
  const second = cut < bytes.length ? partOf(bytes.subarray(cut + 2), names.requests ?? "") : null;
  const name = names.name || "trace";
  // A requests file alone is the first part, too.
  return /\.requests\.jsonl$/i.test(names.steps)
    ? { name, steps: null, requests: first }
    : { name, steps: first, requests: second };
}

function partOf(bytes: Uint8Array, path: string): TraceSource {
  return { kind: "file", file: asFile(bytes, path), path };
}

/** A file can be read again from its middle, for the details of a step. */
function asFile(bytes: Uint8Array, path: string): File {
  return new File([bytes as BlobPart], path.split("/").at(-1) ?? "");
}

/** Where the line of the record separator begins; the end if there is none. */
function separator(bytes: Uint8Array): number {
  for (let at = bytes.indexOf(RECORD_SEPARATOR); at >= 0; at = bytes.indexOf(RECORD_SEPARATOR, at + 1)) {
    const alone = (at === 0 || bytes[at - 1] === NEWLINE) && bytes[at + 1] === NEWLINE;
    if (alone) return at;
  }
  return bytes.length;
}
