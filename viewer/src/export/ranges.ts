/** Which rows an export covers: those that the filter lets through, within the selection. */

import type { Range } from "../data/model/columns";

/** Runs of neighbouring rows. `rows`: what the filter lets through, rising; null for all. */
export function exportRanges(rows: Int32Array | null, scope: Range | null): Range[] {
  if (!scope) return [];
  if (!rows) return [scope];
  const found: Range[] = [];
  let open: Range | null = null;
  for (const row of rows) {
    if (row < scope.first) continue;
    if (row > scope.last) break;
    if (open && row === open.last + 1) open.last = row;
    else {
      open = { first: row, last: row };
      found.push(open);
    }
  }
  return found;
}

export function rowsIn(ranges: readonly Range[]): number {
  return ranges.reduce((sum, range) => sum + range.last - range.first + 1, 0);
}
