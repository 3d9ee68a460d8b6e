/** Which traces the landing page lists, in which order; those of the engines of one run as one. */

import type { TraceListing } from "../data/model/sources";

export type SortKey = "name" | "date" | "gpu";

/** A line of the list: a trace, or those of several engines in the order of their ranks. */
export interface Entry extends Pick<TraceListing, "name" | "date" | "gpu"> {
  traces: readonly TraceListing[];
}

/** Every trace, or run of several engines, once. */
export function entriesOf(all: readonly TraceListing[]): Entry[] {
  const runs = new Map<string, TraceListing[]>();
  const entries: { first: TraceListing; traces: TraceListing[] }[] = [];
  for (const listing of all) {
    const known = listing.rank === null ? undefined : runs.get(listing.run);
    if (known) known.push(listing);
    else {
      const traces = [listing];
      entries.push({ first: listing, traces });
      if (listing.rank !== null) runs.set(listing.run, traces);
    }
  }
  return entries.map(({ first, traces }) => {
    traces.sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0));
    return { name: traces.length > 1 ? nameOfRun(first) : first.name, date: first.date, gpu: first.gpu, traces };
  });
}

/** The name of its folder as the list names it, without that of the rank. */
function nameOfRun({ name, run, rank }: TraceListing): string {
  const own = `rank-${rank}`;
  if (name === own) return run.split("/").pop() || run;
  return name.endsWith(`/${own}`) ? name.slice(0, -own.length - 1) : name;
}

/** Those whose name holds the text, whatever its case, sorted; equal ones by name. */
export function sortEntries(
  all: readonly Entry[],
  text: string,
  { key, down }: { key: SortKey; down: boolean },
): Entry[] {
  const wanted = text.trim().toLowerCase();
  const direction = down ? -1 : 1;
  return all
    .filter((entry) => entry.name.toLowerCase().includes(wanted))
    .sort((a, b) => direction * compare(a[key], b[key]) || compare(a.name, b.name));
}

/** Numbers in names count as numbers: run2 stands before run10. */
const compare = new Intl.Collator("en", { numeric: true }).compare;
