/** What the run was like, in one line: every reason with its share of the time, what cost most first. */

import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { AxisSwitch } from "../charts/AxisSwitch";
import { Swatch } from "../charts/Swatch";
import { useSize } from "../charts/useSize";
import { shares } from "../data";
import { momentText } from "../data/clock";
import type { Row } from "../data/model/columns";
import type { Pressure } from "../data/model/pressure";
import type { Share } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { hasPauses, pressureOfRun, sinceOf } from "../data/since";
import { count, duration, percent, plural } from "../format";
import { axisKind } from "../state/axis";
import { clearSelection, goToReason } from "../state/moves";
import { revision, scope, selection } from "../state/store";
import { useComputed as useWork } from "../statistics/useStatistics";
import { middle } from "../text";

/** More come on request. */
const MOST = 2;
/** In pixels: of less one has all the room. */
const NARROW = 1150;

export function Legend({ store, children }: { store: TraceStore; children?: ComponentChildren }) {
  const totals = useComputed(() => {
    revision.value;
    const range = scope.value;
    return range ? shares(store, range) : [];
  });
  const list = useRef<HTMLUListElement>(null);
  const { width } = useSize(list);
  const most = width > 0 && width < NARROW ? 1 : MOST;
  const whole = useSignal(false);
  const all = totals.value;
  const range = scope.value;
  const pressed = useWork<Pressure | null>(
    () => (range ? pressureOfRun(store, range) : Promise.resolve(null)),
    [store, revision.value, range?.first, range?.last],
    0,
  ).value;
  const listed = whole.value ? all : all.slice(0, most);
  // Recorded reasons first, then what is reconstructed: the first of each kind says which it is.
  const kinds = [true, false].map((recorded) => listed.filter(({ index }) => store.shown[index].recorded === recorded));
  const among = selection.value ? "selection's " : "";
  const words = `% of the ${among}${axisKind.value === "time" ? "time" : "steps"}${all.some(({ lost }) => lost > 0) ? "; time lost" : ""}`;
  return (
    <ul class="legend" ref={list} aria-label={selection.value ? "Reasons in the selection" : "Reasons in the run"}>
      <li
        class="quiet legend-words"
        title={`${words}. Time lost is summed over the requests held back: ten that were held back for a second lost ten.`}
      >
        {/* Of what else is selected the figures say enough, and need the room. */}
        {selection.value && !whole.value ? "in the selection" : words}
      </li>
      {kinds.map((found) =>
        found.map((share, at) => (
          <Item
            key={share.index}
            {...{
              store,
              share,
              all,
              words,
              first: at === 0 && (!selection.value || kinds.every((kind) => kind.length > 0)),
            }}
            since={pressed ? sinceOf(store, pressed, share.index) : -1}
            paused={pressed !== null && hasPauses(pressed, share.index)}
          />
        )),
      )}
      {all.length > most && (
        <li>
          <button
            type="button"
            class="plain"
            aria-expanded={whole.value}
            onClick={() => {
              whole.value = !whole.value;
            }}
          >
            {whole.value ? "fewer" : `and ${plural(all.length - most, "other")}`}
          </button>
        </li>
      )}
      <li class="legend-end" data-picture="none">
        <Selected store={store} />
        <AxisSwitch />
        {children}
      </li>
    </ul>
  );
}

interface ItemProps {
  store: TraceStore;
  share: Share;
  all: readonly Share[];
  /** What its figures are. */
  words: string;
  /** Of its kind. */
  first: boolean;
  /** The row since which it held requests back, up to where it was worst; -1: not, or not known yet. */
  since: Row;
  /** It did so at other times as well, with a pause between. */
  paused: boolean;
}

function Item({ store, share, all, words, first, since, paused }: ItemProps) {
  const { name, family, meaning, recorded, blocked } = store.shown[share.index];
  const sum = (of: (one: Share) => number) => all.reduce((total, one) => total + of(one), 0);
  const { number, ts } = store.steps;
  const at = (row: Row) => momentText(store, ts[row]);
  const byTime = axisKind.value === "time";
  const part = byTime ? share.seconds / sum((one) => one.seconds) : share.rows / sum((one) => one.rows);
  const title = [
    `${meaning}${recorded ? "" : blocked ? " (reconstructed)" : ""}`,
    `${percent(part)} of the ${byTime ? "time" : "steps"}: ${plural(share.rows, "step")}, ${duration(share.seconds)}`,
    ...(blocked
      ? [`requests lost ${duration(share.lost)} to it, summed: each step's length times the requests that it held back`]
      : []),
    `first in step ${count(number[share.first])} at ${at(share.first)}, last in step ${count(number[share.last])} at ${at(share.last)}`,
    ...(since >= 0
      ? [`held requests back since ${at(since)}, step ${count(number[since])}, without a pause, to where it was worst`]
      : []),
    words,
    "Click: go there, and then to the next such step",
  ];
  return (
    <li>
      {first && (
        <span
          class="quiet"
          title={recorded ? "Reasons that the scheduler wrote down" : "Buckets, guessed from the counts of the steps"}
        >
          {recorded ? "recorded: " : "reconstructed: "}
        </span>
      )}
      <button
        type="button"
        class={`plain legend-item${blocked ? " blocked-item" : ""}`}
        title={title.join("\n")}
        onClick={() => goToReason(share.index, since)}
      >
        <Swatch family={family} /> <span>{middle(name, 40)}</span>{" "}
        <span class="number quiet">
          {percent(part)}
          {blocked &&
            share.lost > 0 &&
            `, ${duration(share.lost)} lost${since >= 0 ? `, ${paused ? "worst " : ""}since ${at(since)}` : ""}`}
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
      <button type="button" class="icon" aria-label="Clear the selection" onClick={clearSelection}>
        ✕
      </button>
    </span>
  );
}
