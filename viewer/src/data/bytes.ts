/** Where the bytes of a trace come from: a file, a URL of our own server, or this page. Streamed, unpacked on the way. */

import { Gunzip } from "fflate";
import type { TraceSource } from "./model/sources";

export interface ByteStream {
  stream: ReadableStream<Uint8Array>;
  /** Compressed where it is stored. */
  packed: boolean;
  /** Bytes as they are stored; null if not known. */
  total: number | null;
  /** Bytes taken from the store so far: compressed ones, if it is compressed. */
  taken(): number;
}

export function isGzip(path: string): boolean {
  return /\.gz$/i.test(path);
}

export function isParquet(path: string): boolean {
  return /\.parquet$/i.test(path);
}

export function isZstd(path: string): boolean {
  return /\.zst$/i.test(path);
}

/**
 * Open a source from the beginning. Rejects if the server refuses. `salvage`: unpack everything that can be, which the
 * browser's own unpacking does not: of data that break off it gives another part each time.
 */
export async function openBytes(source: TraceSource, salvage = false, signal?: AbortSignal): Promise<ByteStream> {
  const { stream, total, packed } = await rawStream(source, signal);
  let taken = 0;
  const counted = stream.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(piece, controller) {
        taken += piece.length;
        controller.enqueue(piece);
      },
    }),
  );
  return {
    stream: packed ? (salvage ? salvaged(counted) : unpacked(counted)) : counted,
    packed,
    total,
    taken: () => taken,
  };
}

async function rawStream(source: TraceSource, signal?: AbortSignal) {
  switch (source.kind) {
    case "file":
      return { stream: bytesOf(source.file), total: source.file.size, packed: await packedBlob(source.file) };
    case "bytes": {
      const blob = new Blob([source.bytes as BlobPart]);
      return { stream: bytesOf(blob), total: blob.size, packed: await packedBlob(blob) };
    }
    case "url": {
      const response = await fetch(source.url, signal ? { signal } : {});
      if (!response.ok || !response.body) throw new Error(await refusal(response));
      // What the server unpacks on the way comes plain.
      const packed = isGzip(source.path) && !/[?&]decode=1/.test(source.url);
      const length = Number(response.headers.get("content-length"));
      const total = source.bytes ?? (length > 0 ? length : null);
      return { stream: response.body as ReadableStream<Uint8Array>, total, packed };
    }
  }
}

async function refusal(response: Response): Promise<string> {
  const text = (await response.text().catch(() => "")).slice(0, 500);
  try {
    const error = (JSON.parse(text) as { error?: { field?: string; fix?: string } }).error;
    if (error?.fix) return `the server answered ${response.status}: ${error.fix}`;
  } catch {
    // No JSON: the status must do.
  }
  return `the server answered ${response.status} ${response.statusText}`.trim();
}

export function bytesOf(blob: Blob): ReadableStream<Uint8Array> {
  return blob.stream() as ReadableStream<Uint8Array>;
}

/** Compressed by gzip, whatever its name says. */
export async function packedBlob(blob: Blob): Promise<boolean> {
  const head = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  return head[0] === 0x1f && head[1] === 0x8b;
}

export function unpacked(stream: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  return stream.pipeThrough(new DecompressionStream("gzip") as unknown as TransformStream<Uint8Array, Uint8Array>);
}

/** What gzip data hold up to where they break off or are damaged: the same each time; then it fails as `unpacked` does. */
export function salvaged(stream: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  return stream.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>(
      (() => {
        let open = true;
        let give = (_: Uint8Array) => {};
        const inflater = new Gunzip((piece) => piece.length > 0 && give(piece));
        return {
          transform(piece, controller) {
            if (!open) return;
            give = (some) => controller.enqueue(some);
            try {
              inflater.push(piece);
            } catch {
              open = false;
            }
          },
        };
      })(),
    ),
  );
}
