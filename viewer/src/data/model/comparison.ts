/** Two traces beside each other. */

import type { Row } from "./columns";
import type { ReasonFamily } from "./reasons";

export type Alignment = "step" | "time" | "job";

export interface Comparison {
  /** The first step at which they part, aligned by step; null if they never do. */
  parting: { rowA: Row; rowB: Row; what: string; detail: string } | null;
  /** Every figure that both have. */
  figures: { label: string; unit: string; a: number | null; b: number | null; lessIsBetter: boolean | null }[];
  buckets: { name: string; family: ReasonFamily; recorded: boolean; a: number; b: number }[];
  /** Jobs of either, the largest difference first. */
  jobs: {
    id: string;
    a: { begin: number; end: number; waited: number } | null;
    b: { begin: number; end: number; waited: number } | null;
  }[];
  /** The row of B that stands beside a row of A, and the other way round; -1 if there is none. */
  rowInB(rowA: Row, alignment: Alignment): Row;
  rowInA(rowB: Row, alignment: Alignment): Row;
}
