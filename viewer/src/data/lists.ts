/** Lists that are held as columns. */

import type { Lists } from "./model/columns";

/** The list of this row is the very list of the row before. */
export function sameAsBefore(lists: Lists, row: number): boolean {
  return (
    lists.counts[row] === lists.counts[row - 1] &&
    (lists.counts[row] <= 0 || lists.starts[row] === lists.starts[row - 1])
  );
}

export function forEach(lists: Lists, row: number, take: (id: number) => void): void {
  const start = lists.starts[row];
  const end = start + Math.max(lists.counts[row], 0);
  for (let place = start; place < end; place++) take(lists.ids[place]);
}

/** Places of `length` entries in the order of their groups (a counting sort), and where each group starts. */
export function grouped(groups: Int32Array, length: number, count: number): { starts: Int32Array; order: Int32Array } {
  const starts = new Int32Array(count + 1);
  for (let i = 0; i < length; i++) starts[groups[i] + 1] += 1;
  for (let i = 0; i < count; i++) starts[i + 1] += starts[i];
  const next = starts.slice(0, count);
  const order = new Int32Array(length);
  for (let i = 0; i < length; i++) order[next[groups[i]]++] = i;
  return { starts, order };
}
