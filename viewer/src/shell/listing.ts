/** Which traces the landing page lists, in which order. */

import type { TraceListing } from "../data/model/sources";

export type SortKey = "name" | "date" | "gpu";

/** Those whose name holds the text, whatever its case, sorted; equal ones by name. */
export function sortListings(
  all: readonly TraceListing[],
  text: string,
  { key, down }: { key: SortKey; down: boolean },
): TraceListing[] {
  const wanted = text.trim().toLowerCase();
  const direction = down ? -1 : 1;
  return all
    .filter((listing) => listing.name.toLowerCase().includes(wanted))
    .sort((a, b) => direction * compare(a[key], b[key]) || compare(a.name, b.name));
}

/** Numbers in names count as numbers: run2 stands before run10. */
const compare = new Intl.Collator("en", { numeric: true }).compare;
