/** Lines of a trace's files, read again: what no column holds (unknown fields, prompts) is shown from there. */

import { bytesOf, isGzip, isParquet, openBytes, packedBlob } from "./bytes";
import { LineSplitter } from "./lines";
import type { TraceSource } from "./model/sources";
import { newNotes } from "./notes";
import { parquetRows } from "./parquet";

const FIRST_READ = 64 * 1024;
const LONGEST_LINE = 16 * 2 ** 20;
const decoder = new TextDecoder();

/** A source that can be read from the middle, or null: compressed, or a server's. */
async function seekable(source: TraceSource): Promise<Blob | null> {
  if (source.kind !== "file" || isGzip(source.path) || (await packedBlob(source.file))) return null;
  return source.file;
}

/** The lines that begin at the given offsets (ascending), as text. */
export async function linesAt(source: TraceSource, offsets: readonly number[]): Promise<string[]> {
  if (offsets.length === 0) return [];
  if (isParquet(source.path)) {
    const rows = await Promise.all(offsets.map((row) => parquetRows(source, row, row + 1, newNotes())));
    return rows.map(([record]) => JSON.stringify(record));
  }
  const blob = await seekable(source);
  if (!blob) return linesFrom((await openBytes(source)).stream, 0, offsets);
  return Promise.all(offsets.map((offset) => lineAt(blob, offset)));
}

/** All lines of a stretch of the file that begins at `offset`: at most `count`. */
export async function linesAfter(source: TraceSource, offset: number, count: number): Promise<string[]> {
  const found: string[] = [];
  if (count <= 0) return found;
  if (isParquet(source.path)) {
    return (await parquetRows(source, offset, offset + count, newNotes())).map((record) => JSON.stringify(record));
  }
  const blob = await seekable(source);
  const stream = blob ? bytesOf(blob.slice(offset)) : (await openBytes(source)).stream;
  const base = blob ? offset : 0;
  const splitter = new LineSplitter((bytes, at) => {
    if (base + at >= offset && found.length < count && bytes.length > 0) found.push(decoder.decode(bytes));
  });
  await eachPiece(stream, splitter, () => found.length >= count);
  return found;
}

async function lineAt(blob: Blob, offset: number): Promise<string> {
  for (let length = FIRST_READ; ; length *= 8) {
    const bytes = new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer());
    const end = bytes.indexOf(10);
    if (end >= 0) return decoder.decode(bytes.subarray(0, end));
    if (bytes.length < length || length >= LONGEST_LINE) return decoder.decode(bytes);
  }
}

async function linesFrom(
  stream: ReadableStream<Uint8Array>,
  base: number,
  offsets: readonly number[],
): Promise<string[]> {
  const found: string[] = [];
  const splitter = new LineSplitter((bytes, offset) => {
    if (found.length < offsets.length && base + offset === offsets[found.length]) found.push(decoder.decode(bytes));
  });
  await eachPiece(stream, splitter, () => found.length === offsets.length);
  return found;
}

async function eachPiece(stream: ReadableStream<Uint8Array>, splitter: LineSplitter, enough: () => boolean) {
  const reader = stream.getReader();
  try {
    while (!enough()) {
      const { done, value } = await reader.read();
      if (done) {
        splitter.end();
        break;
      }
      splitter.push(value);
    }
  } catch {
    // A damaged file: what came before the damage counts.
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** Pieces of JSON lines: those that begin at the given offsets, in the order of the file. */
export async function copyLines(
  source: TraceSource,
  offsets: readonly number[],
  signal?: AbortSignal,
): Promise<BlobPart[]> {
  const parts: BlobPart[] = [];
  if (offsets.length === 0) return parts;
  if (isParquet(source.path)) return (await linesAt(source, offsets)).map((line) => `${line}\n`);
  const sorted = [...offsets].sort((a, b) => a - b);
  const blob = await seekable(source);
  const base = blob ? sorted[0] : 0;
  const stream = blob ? bytesOf(blob.slice(base)) : (await openBytes(source, false, signal)).stream;
  let next = 0;
  const splitter = new LineSplitter((bytes, offset) => {
    if (next >= sorted.length || base + offset !== sorted[next]) return;
    next += 1;
    const line = new Uint8Array(bytes.length + 1);
    line.set(bytes);
    line[bytes.length] = 10;
    parts.push(line);
  });
  await eachPiece(stream, splitter, () => {
    signal?.throwIfAborted();
    return next === sorted.length;
  });
  return parts;
}
