/**
 * Fields of a parsed line, checked one by one: a value of the wrong type is left out and counted, as the Python reader
 * does. Numbers written as text ("533") are taken for what they say.
 */

import type { KVNumbers } from "./model/outcomes";
import type { LoadNotes } from "./model/trace";
import { countMore, noteBadLine } from "./notes";

export type Parsed = Record<string, unknown>;

const LARGEST = 2 ** 53;
/** Seconds: a time after the year 2223 is none. */
const LATEST = 8e9;
/** Texts longer than this are cut. */
const LONGEST_TEXT = 65_536;
const decoder = new TextDecoder("utf-8", { fatal: true });

/** The object in a line, or null (and a note) if it holds none. */
export function parsedLine(bytes: Uint8Array, file: string, number: number, notes: LoadNotes): Parsed | null {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(bytes));
  } catch (error) {
    noteBadLine(notes, file, number, problemOf(error));
    return null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    noteBadLine(notes, file, number, "not a JSON object");
    return null;
  }
  return value as Parsed;
}

/** The object that a line of JSON holds; null if it holds none. */
export function objectOf(line: string): Parsed | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? (value as Parsed) : null;
  } catch {
    return null;
  }
}

function problemOf(error: unknown): string {
  if (error instanceof RangeError) return "nested too deeply";
  return error instanceof SyntaxError ? `not JSON: ${error.message.slice(0, 120)}` : "not UTF-8";
}

/** Reads the fields of records of one kind. */
export class FieldReader {
  constructor(
    private readonly event: string,
    private readonly notes: LoadNotes,
  ) {}

  whole(record: Parsed, name: string): number | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) <= LARGEST) return value;
    if (typeof value === "string" && /^-?\d{1,15}$/.test(value)) return Number(value);
    return this.dropped(record, name);
  }

  time(record: Parsed, name: string): number | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    if (typeof value === "number") return Math.abs(value) < LATEST ? value : this.dropped(record, name);
    if (typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value))) return Number(value);
    return this.dropped(record, name);
  }

  flag(record: Parsed, name: string): boolean | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    return typeof value === "boolean" ? value : this.dropped(record, name);
  }

  text(record: Parsed, name: string): string | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    return typeof value === "string" ? this.cut(value) : this.dropped(record, name);
  }

  /** A list of texts; with `gaps`, null may stand for one. */
  texts(record: Parsed, name: string, gaps = false): (string | null)[] | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    if (!Array.isArray(value)) return this.dropped(record, name);
    for (let i = 0; i < value.length; i++) {
      const item: unknown = value[i];
      if (typeof item === "string") {
        if (item.length > LONGEST_TEXT) value[i] = this.cut(item);
      } else if (!(gaps && item === null)) {
        return this.dropped(record, name);
      }
    }
    return value as (string | null)[];
  }

  /** Text -> whole number. */
  counts(record: Parsed, name: string): [string, number][] | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    if (typeof value !== "object" || Array.isArray(value)) return this.dropped(record, name);
    const entries = Object.entries(value as Parsed);
    for (let i = 0; i < entries.length; i++) {
      const number = entries[i][1];
      if (typeof number !== "number" || !Number.isInteger(number)) return this.dropped(record, name);
      if (entries[i][0].length > LONGEST_TEXT) entries[i][0] = this.cut(entries[i][0]);
    }
    return entries as [string, number][];
  }

  /** A list of whole numbers. */
  wholes(record: Parsed, name: string): number[] | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    return Array.isArray(value) && value.every(Number.isInteger) ? value : this.dropped(record, name);
  }

  /** A list of objects; what is none is left out. */
  objects(record: Parsed, name: string): Parsed[] {
    const value = record[name];
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value)) {
      this.dropped(record, name);
      return [];
    }
    return value.filter((item) => typeof item === "object" && item !== null && !Array.isArray(item)) as Parsed[];
  }

  kv(record: Parsed, name = "kv"): KVNumbers | null {
    const value = record[name];
    if (value === undefined || value === null) return null;
    if (typeof value !== "object" || Array.isArray(value)) return this.dropped(record, name);
    const kv = value as Parsed;
    return {
      limit: this.text(kv, "limit"),
      needed: this.whole(kv, "needed"),
      free: this.whole(kv, "free"),
      cachedHits: this.whole(kv, "cached_hits"),
      reserved: this.whole(kv, "reserved"),
      watermark: this.whole(kv, "watermark"),
      pinned: this.whole(kv, "pinned"),
    };
  }

  private cut(text: string): string {
    if (text.length <= LONGEST_TEXT) return text;
    this.notes.longTexts += 1;
    // What is cut must stay distinct: its length is part of it.
    return `${text.slice(0, LONGEST_TEXT)}… (${text.length} characters)`;
  }

  /** Counted once, however often it is used. */
  private dropped(record: Parsed, name: string): null {
    record[name] = null;
    countMore(this.notes.droppedFields, `${this.event}.${name}`);
    return null;
  }
}
