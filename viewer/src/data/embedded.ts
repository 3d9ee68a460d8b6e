/**
 * A trace inside this page, as `tokenyard export --html` puts it there: an inert script tag (id EMBEDDED_ID) whose text is
 * base64 of one gzip stream: the steps file, then, if there is a requests file, a line with a record separator alone and
 * the requests file. Base64 also rules out that the data ends the tag.
 */

import { unpacked } from "./bytes";
import type { EmbeddedNames, TraceFiles, TraceSource } from "./model/sources";
import { slicer } from "./slices";

export const EMBEDDED_ID = "tokenyard-trace";

const NEWLINE = 10;
const RECORD_SEPARATOR = 0x1e;
/** Characters of base64 that are decoded at once, a multiple of four: what they unpack to is in memory at once. */
const PIECE = 64 << 10;
/** Bytes that are held until they are given to the browser, which keeps large ones outside of the page's memory. */
const HELD = 16 << 20;
/** Bytes that the first picture is drawn from, while the others are unpacked. */
const BEGINNING = 3 << 20;

/** Resolves once the first steps are unpacked; what follows does so later. Nothing is ever in memory as a whole. */
export async function embedded(base64: string, names: EmbeddedNames): Promise<TraceFiles> {
  const parts = new Parts(unpacked(decoded(base64)).getReader());
  const name = names.name || "trace";
  const { beginning, whole } = firstPart(parts, names.steps);
  // A requests file alone is the first part, too.
  if (/\.requests\.jsonl$/i.test(names.steps)) return { name, steps: null, requests: await whole };
  const steps = await Promise.race([beginning, whole.then(() => null)]);
  const rest = whole.then(async () => (parts.ended ? null : fileOf(await parts.next(), names.requests ?? "")));
  // Damage is reported to what waits for it, not before.
  rest.catch(() => {});
  return steps ? { name, steps, requests: null, whole, rest } : { name, steps: await whole, requests: null, rest };
}

/** The part itself, and its beginning if it is a long one: then long before it is unpacked. */
function firstPart(parts: Parts, path: string) {
  let begin = (_: TraceSource) => {};
  const beginning = new Promise<TraceSource>((resolve) => {
    begin = resolve;
  });
  const blobs = parts.next((first) => begin(fileOf(first, path)));
  return { beginning, whole: blobs.then((all) => fileOf(all, path)) };
}

/** A file can be read again from its middle, for the details of a step. */
function fileOf(blobs: Blob[], path: string): TraceSource {
  return { kind: "file", file: new File(blobs, path.split("/").at(-1) ?? ""), path };
}

/** Bytes of base64, a piece whenever one is requested. White space may stand around it. */
function decoded(base64: string): ReadableStream<Uint8Array> {
  const end = base64.trimEnd().length;
  let at = base64.length - base64.trimStart().length;
  // Streams alone never let the page get a word in: not even the worker that reads the beginning would be heard.
  const giveWay = slicer();
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at >= end) return controller.close();
      const text = atob(base64.slice(at, Math.min(at + PIECE, end)));
      at += PIECE;
      const piece = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) piece[i] = text.charCodeAt(i);
      controller.enqueue(piece);
      return giveWay();
    },
  });
}

/** What stands between lines of a record separator alone. */
class Parts {
  ended = false;
  /** Read, and of the part after the one that was given last. */
  private left: Uint8Array = new Uint8Array();

  constructor(private readonly reader: ReadableStreamDefaultReader<Uint8Array>) {}

  /** The next part; `begun` is called with its first blob where it has several. A separator is looked for in whole pieces that begin with the last byte of the one before. */
  async next(begun?: (blobs: Blob[]) => void): Promise<Blob[]> {
    const blobs: Blob[] = [];
    let held: Uint8Array[] = [];
    let size = 0;
    const keep = (piece: Uint8Array, all = false) => {
      held.push(piece);
      size += piece.length;
      if (size < (blobs.length === 0 ? BEGINNING : HELD) && !all) return;
      blobs.push(new Blob(held as BlobPart[]));
      if (!all && blobs.length === 1) begun?.([...blobs]);
      [held, size] = [[], 0];
    };
    let begins = true;
    for (;;) {
      const piece = this.left;
      const cut = separator(piece, begins);
      if (cut >= 0) {
        keep(piece.subarray(0, cut), true);
        this.left = piece.slice(cut + 2);
        return blobs;
      }
      // Its last two bytes may be the line feed and the separator of a line that goes on in the next piece.
      const sure = Math.max(piece.length - 2, 0);
      if (sure > 0) begins = false;
      keep(piece.subarray(0, sure));
      const { done, value } = await this.reader.read();
      if (done) {
        this.ended = true;
        keep(piece.subarray(sure), true);
        return blobs;
      }
      this.left = joined(piece.subarray(sure), value);
    }
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b;
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** Where a line of the record separator alone begins; -1 if there is none. `begins`: the bytes begin with a line. */
export function separator(bytes: Uint8Array, begins: boolean): number {
  for (let at = bytes.indexOf(RECORD_SEPARATOR); at >= 0; at = bytes.indexOf(RECORD_SEPARATOR, at + 1)) {
    const first = at === 0 ? begins : bytes[at - 1] === NEWLINE;
    if (first && bytes[at + 1] === NEWLINE) return at;
  }
  return -1;
}
