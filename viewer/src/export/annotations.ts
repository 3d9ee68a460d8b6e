/**
 * Notes on steps, kept in a side file beside the trace: `<trace>.annotations.json`.
 *
 * The trace itself is never changed. Opened through `tokenyard view` the side file is read and written by the server;
 * otherwise the user saves and opens it.
 */

export interface Annotation {
  /** Number of the step, not its row: it stays right if the trace is cut or grows. */
  step: number;
  text: string;
  /** ISO time, or "" if the file does not say. */
  created: string;
}

export const FORMAT = "tokenyard-annotations";
export const VERSION = 1;
const LONGEST_TEXT = 4_000;
const MOST = 10_000;

export interface ReadAnnotations {
  annotations: Annotation[];
  /** Sentences about what was left out. */
  problems: string[];
}

/** Read a side file. Never throws: what is wrong is listed in `problems`. */
export function readAnnotations(text: string): ReadAnnotations {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    return { annotations: [], problems: ["The file is not JSON: save annotations from this page and open that file."] };
  }
  return fromDocument(document);
}

/** The same, of what `/api/annotations` answers. */
export function fromDocument(document: unknown): ReadAnnotations {
  if (!isObject(document) || document["format"] !== FORMAT || !Array.isArray(document["annotations"])) {
    return { annotations: [], problems: [`This is no file of annotations: "format" should be "${FORMAT}".`] };
  }
  const problems: string[] = [];
  if (document["version"] !== VERSION) {
    problems.push(`The file says version ${String(document["version"])}; this page knows version ${VERSION}.`);
  }
  const entries: unknown[] = document["annotations"];
  const annotations = entries.slice(0, MOST).map(readOne);
  const good = annotations.filter((one) => one !== null);
  const bad = entries.length - good.length;
  if (bad > 0) problems.push(`${bad} of ${entries.length} entries were left out: they have no step or no text.`);
  return { annotations: merge([], good), problems };
}

function readOne(entry: unknown): Annotation | null {
  if (!isObject(entry)) return null;
  const { step, text, created } = entry;
  if (!Number.isSafeInteger(step) || typeof text !== "string" || text.trim() === "") return null;
  return {
    step: step as number,
    text: text.slice(0, LONGEST_TEXT),
    created: typeof created === "string" ? created : "",
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Both lists in order of steps; what both hold is there once. */
export function merge(ours: readonly Annotation[], theirs: readonly Annotation[]): Annotation[] {
  const known = new Map<string, Annotation>();
  for (const one of [...ours, ...theirs]) known.set(`${one.step} ${one.text}`, one);
  return [...known.values()].sort((a, b) => a.step - b.step || (a.created < b.created ? -1 : 1));
}

export function add(list: readonly Annotation[], step: number, text: string, created: string): Annotation[] {
  const words = text.trim().slice(0, LONGEST_TEXT);
  return words === "" ? [...list] : merge(list, [{ step, text: words, created }]);
}

export function remove(list: readonly Annotation[], gone: Annotation): Annotation[] {
  return list.filter((one) => one.step !== gone.step || one.text !== gone.text);
}

/** The side file: stable bytes for equal annotations. */
export function writeAnnotations(trace: string, annotations: readonly Annotation[]): string {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, trace, annotations }, null, 2)}\n`;
}

export function sideFileName(source: string): string {
  const name = source.split(/[/\\]/).at(-1) ?? "trace";
  return `${name.replace(/(\.steps|\.requests)?\.(jsonl|parquet)(\.gz|\.zst)?$/, "")}.annotations.json`;
}
