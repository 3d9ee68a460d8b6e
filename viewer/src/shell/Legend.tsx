/** What the run was like, in one line: every reason with its share of the steps, trouble first. */

import { useComputed } from "@preact/signals";
import { Swatch } from "../charts/Swatch";
import type { TraceStore } from "../data/model/trace";
import { count, plural } from "../format";
import { goToReason } from "../state/moves";
import { revision, scope, selection } from "../state/store";
import { middle } from "../text";

/** More are under "and so many others". */
const MOST = 5;

export function Legend({ store }: { store: TraceStore }) {
  const totals = useComputed(() => {
    revision.value;
    const range = scope.value;
    return range ? countShown(store, range.first, range.last) : [];
  });
  const steps = totals.value.reduce((sum, { rows }) => sum + rows, 0);
  const shown = totals.value.slice(0, MOST);
  return (
    <ul class="legend" aria-label={selection.value ? "Reasons in the selection" : "Reasons in the run"}>
      {shown.map(({ index, rows }) => {
        const { name, family, meaning, recorded, blocked } = store.shown[index];
        return (
          <li key={name}>
            <button
              type="button"
              class={`plain legend-item${blocked ? " blocked-item" : ""}`}
              title={`${meaning}${recorded ? "" : blocked ? " (reconstructed)" : ""}\nClick: go to the next such step`}
              onClick={() => goToReason(index)}
            >
              <Swatch family={family} /> <span>{middle(name, 40)}</span>{" "}
              <span class="number quiet">
                {count(rows)} ({Math.round((100 * rows) / steps)} %)
              </span>
            </button>
          </li>
        );
      })}
      {totals.value.length > MOST && <li class="quiet">and {plural(totals.value.length - MOST, "other")}</li>}
      <li class="occupancy-key quiet" title="The line in the strip above: share of KV blocks in use">
        <span aria-hidden="true">╱╲</span> KV in use
      </li>
    </ul>
  );
}

function countShown(store: TraceStore, first: number, last: number): { index: number; rows: number }[] {
  const rows = new Uint32Array(256);
  const { shown } = store.steps;
  for (let row = first; row <= last; row++) rows[shown[row]] += 1;
  return store.shown
    .map((reason, index) => ({ index, rows: rows[index], blocked: reason.blocked }))
    .filter((total) => total.rows > 0)
    .sort((a, b) => Number(b.blocked) - Number(a.blocked) || b.rows - a.rows);
}
