/** The other engines of the run that is shown, ranks or prefill and decode: they share its clock, and stand below it. */

import { signal } from "@preact/signals";
import { load } from "../data";
import type { TraceFiles, TraceSource } from "../data/model/sources";
import type { TraceStore } from "../data/model/trace";

export interface Engine {
  /** `rank-1`, `decode`. */
  name: string;
  files: TraceFiles;
  /** Its steps; null until they are read. */
  store: TraceStore | null;
}

export const engines = signal<readonly Engine[]>([]);
/** What the engine on the page is called among them. */
export const engineName = signal("");

/** What an engine of the run is called; "" where there is but one. */
export function nameOfEngine(store: TraceStore): string {
  return engines.value.find((each) => each.store === store)?.name ?? engineName.value;
}

const FOLDER = /^(?:rank-\d+|prefill|decode)$/;
/** More is read only on request. */
const MOST_BYTES = 100e6;
const MOST_ENGINES = 16;

/** Files of one run lie in folders that differ by the engine alone. */
function placeOf(files: TraceFiles): { run: string; name: string } {
  const parts = (files.steps?.path ?? "").split("/");
  return {
    run: parts.filter((part) => !FOLDER.test(part)).join("/"),
    name: parts.filter((part) => FOLDER.test(part)).join(" ") || "rank-0",
  };
}

/** Of several traces all are engines of one run. */
export function isOneRun(all: readonly TraceFiles[]): boolean {
  return all.every((each) => each.steps !== null && placeOf(each).run === placeOf(all[0]).run);
}

const byName = new Intl.Collator("en", { numeric: true }).compare;

/** `rank-0`; of a pair the one that decodes. */
export function firstEngine(all: readonly TraceFiles[]): TraceFiles {
  return [...all].sort((a, b) => byName(placeOf(a).name, placeOf(b).name))[0];
}

function bytesOf(source: TraceSource | null): number {
  return source?.kind === "file" ? source.file.size : source?.kind === "url" ? (source.bytes ?? 0) : 0;
}

/** Those of `all` that are other engines of the run of `shown`; small ones are read at once. */
export async function findEngines(shown: TraceFiles, all: readonly TraceFiles[]): Promise<void> {
  const { run, name } = placeOf(shown);
  const others = all
    .filter((each) => each.steps && each.steps.path !== shown.steps?.path && placeOf(each).run === run)
    .map((files): Engine => ({ name: placeOf(files).name, files, store: null }))
    .filter((each, at, found) => each.name !== name && found.findIndex((one) => one.name === each.name) === at)
    .sort((a, b) => byName(a.name, b.name));
  engineName.value = others.length > 0 ? name : "";
  engines.value = others.slice(0, MOST_ENGINES);
  if (others.reduce((sum, { files }) => sum + bytesOf(files.steps), 0) <= MOST_BYTES) await readEngines();
}

/** One after the other; one that cannot be read stays away. */
export async function readEngines(): Promise<void> {
  for (const engine of engines.peek()) {
    if (engine.store) continue;
    const store = await load({ ...engine.files, requests: null }).done.catch(() => null);
    const now = engines.peek();
    if (!now.includes(engine)) return;
    engines.value = now.flatMap((each) => (each === engine ? (store ? [{ ...each, store }] : []) : [each]));
  }
}
