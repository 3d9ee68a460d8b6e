/** Start, End, Window, Apply: which steps are shown, in numbers. */

import { computed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { rowOfStep } from "../data";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { fit, showRange, zoom } from "../state/moves";
import { announce, focusRow, matches, revision, setExtra, view } from "../state/store";
import * as frame from "./frame";
import { DEFAULT_WINDOW } from "./geometry";

/** A step is looked at that the filter keeps out of the rows. */
const isHidden = computed(() => focusRow.value >= 0 && matches.value.rows !== null && frame.focusPlace.value < 0);

export function HiddenStep({ store }: { store: TraceStore }) {
  return (
    <span class="hidden-step" role="status">
      {isHidden.value && `step ${count(store.steps.number[focusRow.value])} does not pass the filter`}
    </span>
  );
}

export function RangeBar({ store }: { store: TraceStore }) {
  revision.value;
  const { first, last } = view.value;
  const from = store.steps.number[Math.max(Math.floor(first), 0)];
  const to = store.steps.number[Math.min(Math.max(Math.ceil(last) - 1, 0), store.rows - 1)];
  const fold = useRef<HTMLDetailsElement>(null);
  const typed = useSignal<{ start?: string; end?: string; window?: string }>({});
  const field = (name: "start" | "end" | "window", value: number) => typed.value[name] ?? String(value);
  const type = (name: string) => (event: Event) => {
    typed.value = { ...typed.value, [name]: (event.currentTarget as HTMLInputElement).value };
  };
  const apply = (event: Event) => {
    event.preventDefault();
    const [start, end] = [Number(field("start", from)), Number(field("end", to))];
    const window = Number(field("window", frame.windowRows.value));
    if (![start, end, window].every(Number.isSafeInteger) || end < start || window < 1) {
      announce("Start and End are numbers of steps, Start not above End; Window is at least 1");
      return;
    }
    setExtra("window", window === DEFAULT_WINDOW ? "" : String(window));
    if (typed.value.start !== undefined || typed.value.end !== undefined) {
      showRange(rowOfStep(store, start), rowOfStep(store, end) + 1);
    }
    typed.value = {};
    if (fold.current) fold.current.open = false;
  };
  return (
    <form class="range-bar" aria-label="Steps shown" onSubmit={apply}>
      <details ref={fold}>
        <summary title="Which steps are in view: choose them by number">
          {count(from)}–{count(to)}
        </summary>
        <div class="range-fields">
          <label title="Number of the first step in view">
            Start <input type="number" class="number" value={field("start", from)} onInput={type("start")} />
          </label>
          <label title="Number of the last step in view">
            End <input type="number" class="number" value={field("end", to)} onInput={type("end")} />
          </label>
          <label title="Most slices of time in the picture: of more steps in view, neighbours are merged">
            Window
            <input
              type="number"
              class="number"
              min="1"
              value={field("window", frame.windowRows.value)}
              onInput={type("window")}
            />
          </label>
          <button type="submit">Apply</button>
        </div>
      </details>
      <span class="zooms">
        <button type="button" class="icon" aria-label="Zoom in" title="Zoom in (W)" onClick={() => zoom(0.5)}>
          +
        </button>
        <button type="button" class="icon" aria-label="Zoom out" title="Zoom out (S)" onClick={() => zoom(2)}>
          −
        </button>
        <button type="button" title="The selection, else the whole run (F)" onClick={fit}>
          Fit
        </button>
        <button type="button" title="Rows high enough to be read" onClick={frame.showReadable}>
          Rows
        </button>
      </span>
    </form>
  );
}
