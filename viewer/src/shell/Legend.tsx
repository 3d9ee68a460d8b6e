/** What the run was like, in one line: every reason with its share of the time, what cost most first. */

import { useComputed } from "@preact/signals";
import { AxisSwitch } from "../charts/AxisSwitch";
import { Swatch } from "../charts/Swatch";
import { shares } from "../data";
import type { Share } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { count, duration, percent, plural } from "../format";
import { axisKind } from "../state/axis";
import { goToReason } from "../state/moves";
import { revision, scope, selection } from "../state/store";
import { middle } from "../text";

/** More are under "and so many others". */
const MOST = 5;

export function Legend({ store }: { store: TraceStore }) {
  const totals = useComputed(() => {
    revision.value;
    const range = scope.value;
    return range ? shares(store, range) : [];
  });
  const all = totals.value;
  return (
    <ul class="legend" aria-label={selection.value ? "Reasons in the selection" : "Reasons in the run"}>
      {all.slice(0, MOST).map((share) => (
        <Item key={share.index} store={store} share={share} all={all} />
      ))}
      {all.length > MOST && <li class="quiet">and {plural(all.length - MOST, "other")}</li>}
      <li class="legend-end" data-picture="none">
        <Selected store={store} />
        <AxisSwitch />
        <span class="quiet" title="The line in the strip above: share of KV blocks in use">
          <span aria-hidden="true">╱╲</span> KV in use
        </span>
      </li>
    </ul>
  );
}

function Item({ store, share, all }: { store: TraceStore; share: Share; all: readonly Share[] }) {
  const { name, family, meaning, recorded, blocked } = store.shown[share.index];
  const sum = (of: (one: Share) => number) => all.reduce((total, one) => total + of(one), 0);
  const byTime = axisKind.value === "time";
  const part = byTime ? share.seconds / sum((one) => one.seconds) : share.rows / sum((one) => one.rows);
  const title = [
    `${meaning}${recorded ? "" : blocked ? " (reconstructed)" : ""}`,
    `${percent(part)} of the ${byTime ? "time" : "steps"}: ${plural(share.rows, "step")}, ${duration(share.seconds)}`,
    ...(blocked ? [`requests lost ${duration(share.lost)} to it: each step's length times whom it held back`] : []),
    "Click: go to the next such step",
  ];
  return (
    <li>
      <button
        type="button"
        class={`plain legend-item${blocked ? " blocked-item" : ""}`}
        title={title.join("\n")}
        onClick={() => goToReason(share.index)}
      >
        <Swatch family={family} /> <span>{middle(name, 40)}</span>{" "}
        <span class="number quiet">
          {percent(part)}
          {blocked && share.lost > 0 && `, ${duration(share.lost)} lost`}
        </span>
      </button>
    </li>
  );
}

function Selected({ store }: { store: TraceStore }) {
  const chosen = selection.value;
  if (!chosen) return null;
  const { number } = store.steps;
  return (
    <span class="selected">
      selected: {count(number[chosen.first])}–{count(number[chosen.last])} ({count(chosen.last - chosen.first + 1)})
      <button
        type="button"
        class="icon"
        aria-label="Clear the selection"
        onClick={() => {
          selection.value = null;
        }}
      >
        ✕
      </button>
    </span>
  );
}
