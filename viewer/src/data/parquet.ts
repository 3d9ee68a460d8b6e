/**
 * The Parquet twin of a trace (docs/trace-format.md, "Parquet"): row n is line n + 1 of the JSON lines, one sparse column
 * per field, what has no column in `_extra`, lines that are no record in `_raw`.
 */

import { decompress as unpackZstd } from "fzstd";
import type { AsyncBuffer, Compressors, FileMetaData, RowGroup, SchemaTree } from "hyparquet";
import { assembleNested } from "hyparquet/src/assemble.js";
import { readColumn } from "hyparquet/src/column.js";
import { DEFAULT_PARSERS } from "hyparquet/src/convert.js";
import { parquetMetadataAsync, parquetSchema } from "hyparquet/src/metadata.js";
import { getTreePath } from "hyparquet/src/schema.js";
import { flatten } from "hyparquet/src/utils.js";
import { type Parsed, parsedLine } from "./fields";
import { isBlank } from "./lines";
import type { TraceSource } from "./model/sources";
import type { LoadNotes } from "./model/trace";

const COMPRESSORS: Compressors = {
  ZSTD: (input) => unpackZstd(input),
  GZIP: () => {
    throw new Error(
      "its pages are packed by gzip; `tokenyard convert --compression zstd` makes one that this page reads",
    );
  },
};
const COLUMNS_OF_OURS = new Set(["_extra", "_raw", "_layout"]);

/** Hand every record of a Parquet trace to `take`, with the number of its line. */
export async function parquetRecords(
  source: TraceSource,
  notes: LoadNotes,
  take: (record: Parsed, line: number) => void,
  progress: (bytesRead: number, bytesTotal: number | null, records: number) => void,
  stopped: () => boolean,
): Promise<void> {
  const file = await bufferOf(source);
  const metadata = await parquetMetadataAsync(file);
  let row = 0;
  for (const group of metadata.row_groups) {
    if (stopped()) break;
    const end = row + Number(group.num_rows);
    const rows = await rowsOf(file, metadata, group);
    for (let i = 0; i < rows.length; i++) {
      const record = recordOf(rows[i], source.path, row + i + 1, notes);
      if (record !== null) take(record, row + i + 1);
    }
    row = end;
    progress(Math.round((file.byteLength * row) / Math.max(Number(metadata.num_rows), 1)), file.byteLength, row);
    await new Promise((resolve) => setTimeout(resolve));
  }
}

/** Rows `from` .. `to` - 1 as records, for looking at a step again. */
export async function parquetRows(source: TraceSource, from: number, to: number, notes: LoadNotes): Promise<Parsed[]> {
  const file = await bufferOf(source);
  const metadata = await parquetMetadataAsync(file);
  const found: Parsed[] = [];
  let row = 0;
  for (const group of metadata.row_groups) {
    const end = row + Number(group.num_rows);
    if (end > from && row < to) {
      const rows = await rowsOf(file, metadata, group);
      for (let at = Math.max(from, row); at < Math.min(to, end); at++) {
        found.push(recordOf(rows[at - row], source.path, at + 1, notes) ?? {});
      }
    }
    row = end;
  }
  return found;
}

/** The rows of a group, each with the columns that hold something in it. */
async function rowsOf(file: AsyncBuffer, metadata: FileMetaData, group: RowGroup): Promise<Parsed[]> {
  const schema = parquetSchema(metadata);
  const columns = new Map<string, ArrayLike<unknown>>();
  for (const { meta_data: column } of group.columns) {
    if (!column) continue;
    const { start, end } = placeOf(column);
    const schemaPath: SchemaTree[] = getTreePath(schema, column.path_in_schema);
    const { data } = readColumn(
      { view: new DataView(await file.slice(start, end)), offset: 0 },
      { groupStart: 0, groupRows: Number(group.num_rows), selectStart: 0, selectEnd: Number(group.num_rows) },
      {
        pathInSchema: column.path_in_schema,
        element: schemaPath[schemaPath.length - 1].element,
        schemaPath,
        ...column,
        compressors: COMPRESSORS,
        parsers: DEFAULT_PARSERS,
      },
    );
    columns.set(column.path_in_schema.join("."), flatten(data));
  }
  for (const child of schema.children) {
    if (child.children.length > 0)
      assembleNested(columns as Parameters<typeof assembleNested>[0], child, DEFAULT_PARSERS);
  }
  const rows: Parsed[] = Array.from({ length: Number(group.num_rows) }, () => ({}));
  for (const { element } of schema.children) {
    const values = columns.get(element.name) ?? [];
    for (let row = 0; row < values.length; row++) {
      const value = values[row];
      if (value !== null && value !== undefined) rows[row][element.name] = value;
    }
  }
  return rows;
}

/** Bytes of a column's pages: the dictionary stands in front, if there is one. */
function placeOf(column: { dictionary_page_offset?: bigint; data_page_offset: bigint; total_compressed_size: bigint }) {
  const start = Number(column.dictionary_page_offset || column.data_page_offset);
  return { start, end: start + Number(column.total_compressed_size) };
}

/** "steps" or "requests", or null if the file is no trace. */
export async function parquetKind(source: TraceSource): Promise<"steps" | "requests" | null> {
  const metadata = await parquetMetadataAsync(await bufferOf(source));
  const kind = metadata.key_value_metadata?.find(({ key }) => key === "tokenyard.kind")?.value;
  return kind === "steps" || kind === "requests" ? kind : null;
}

function recordOf(row: Record<string, unknown>, path: string, line: number, notes: LoadNotes): Parsed | null {
  const raw = row["_raw"];
  if (raw instanceof Uint8Array || typeof raw === "string") {
    const bytes = typeof raw === "string" ? new TextEncoder().encode(raw) : raw;
    return isBlank(bytes) ? null : parsedLine(bytes, path, line, notes);
  }
  const record: Parsed = {};
  for (const [name, value] of Object.entries(row)) {
    if (value !== null && value !== undefined && !COLUMNS_OF_OURS.has(name)) record[name] = plain(value);
  }
  if (typeof record["config"] === "string") record["config"] = parsedOr(record["config"], record["config"]);
  const extra = row["_extra"];
  if (typeof extra === "string") Object.assign(record, parsedOr(extra, {}));
  return record;
}

function parsedOr<T>(text: string, otherwise: T): T {
  try {
    return JSON.parse(text) as T;
  } catch {
    return otherwise;
  }
}

/** Numbers of 64 bits as numbers, typed arrays as arrays, empty fields of structs left out. */
function plain(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (ArrayBuffer.isView(value)) return Array.from(value as Int32Array, plain);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "object" && value !== null) {
    const record: Parsed = {};
    for (const [name, item] of Object.entries(value)) {
      if (item !== null && item !== undefined) record[name] = plain(item);
    }
    return record;
  }
  return value;
}

async function bufferOf(source: TraceSource): Promise<AsyncBuffer> {
  switch (source.kind) {
    case "file":
      return {
        byteLength: source.file.size,
        slice: (start, end) => source.file.slice(start, end).arrayBuffer(),
      };
    case "bytes": {
      const { buffer, byteOffset, byteLength } = source.bytes;
      return {
        byteLength,
        slice: (start, end = byteLength) => buffer.slice(byteOffset + start, byteOffset + end) as ArrayBuffer,
      };
    }
    case "url": {
      // Parquet is small for what it holds; one request is faster than many.
      const response = await fetch(source.url);
      if (!response.ok) throw new Error(`the server answered ${response.status} ${response.statusText}`.trim());
      const bytes = await response.arrayBuffer();
      return { byteLength: bytes.byteLength, slice: (start, end) => bytes.slice(start, end) };
    }
  }
}
