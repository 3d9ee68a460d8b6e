/** Tabs, filter, go-to, and the buttons at the right. */

import { useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { rowAtTime, rowOfStep } from "../data";
import { baseOf, hasWallClock, originOf } from "../data/clock";
import type { Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { ExportMenu } from "../export/ExportMenu";
import { count, secondsTyped } from "../format";
import { lanesShown, revealInLanes } from "../requests/window";
import { TAB_TITLES, TABS } from "../state/hash";
import { closeTrace } from "../state/loader";
import { focus, showTab } from "../state/moves";
import { announce, filter, filterText, matches, matching, tab, themeName } from "../state/store";
import { chooseTheme } from "../state/theme";
import { readable, showReadable } from "../timeline/frame";
import { RangeBar } from "../timeline/RangeBar";
import { HelpButton } from "./Help";

const DAY = 86_400;

interface Props {
  store: TraceStore;
  filterField: RefObject<HTMLInputElement>;
  goToField: RefObject<HTMLInputElement>;
}

export function Toolbar({ store, filterField, goToField }: Props) {
  return (
    <div class="toolbar">
      <Tabs />
      <FilterBox field={filterField} />
      <GoTo store={store} field={goToField} />
      {tab.value === "timeline" && <RangeBar store={store} />}
      <span class="spring" />
      <button type="button" title="Back to the list of traces; this one stays at hand" onClick={closeTrace}>
        Load another
      </button>
      <ExportMenu store={store} />
      <ThemeButton />
      <HelpButton />
    </div>
  );
}

function Tabs() {
  const onKeyDown = (event: KeyboardEvent) => {
    const direction = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (direction === undefined) return;
    event.preventDefault();
    const next = TABS[(TABS.indexOf(tab.value) + direction + TABS.length) % TABS.length];
    showTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views" onKeyDown={onKeyDown} tabIndex={-1}>
      {TABS.map((name, at) => (
        <button
          type="button"
          role="tab"
          key={name}
          id={`tab-${name}`}
          title={`${TAB_TITLES[name]} (${at + 1})`}
          aria-selected={tab.value === name}
          aria-controls="view"
          tabIndex={tab.value === name ? 0 : -1}
          onClick={() => showTab(name)}
        >
          {TAB_TITLES[name]}
        </button>
      ))}
    </div>
  );
}

function FilterBox({ field }: { field: RefObject<HTMLInputElement> }) {
  const { problems } = filter.value;
  const kept = matches.value.rows;
  return (
    <div class="filter">
      <input
        ref={field}
        type="search"
        aria-label="Filter"
        aria-describedby="filter-state filter-note"
        aria-invalid={problems.length > 0}
        placeholder="filter: job:… reason:kv"
        spellcheck={false}
        autocomplete="off"
        value={filterText.value}
        onInput={(event) => {
          filterText.value = event.currentTarget.value;
        }}
      />
      <span id="filter-state" class="filter-state number" role="status">
        {matching.value ? "…" : kept ? `${count(kept.length)} steps` : ""}
      </span>
    </div>
  );
}

function GoTo({ store, field }: { store: TraceStore; field: RefObject<HTMLInputElement> }) {
  const typed = useSignal("");
  const go = (event: Event) => {
    event.preventDefault();
    const moment = secondsTyped(typed.value);
    if (moment !== null) {
      // Of a day that a clock shows the run's part: the next one after its beginning.
      const since =
        hasWallClock(store) && typed.value.split(":").length > 2 ? (moment - baseOf(store) + DAY) % DAY : moment;
      lookAt(store, rowAtTime(store, originOf(store) + since));
      typed.value = "";
      field.current?.blur();
      return;
    }
    const wanted = Number(typed.value.replace(/[,_\s]/g, ""));
    if (typed.value.trim() === "" || !Number.isSafeInteger(wanted)) {
      announce("Go to: type the number of a step, or a time such as 12.5s or 3:20");
      return;
    }
    const row = rowOfStep(store, wanted);
    lookAt(store, row);
    const found = store.steps.number[row];
    if (found !== wanted) announce(noStep(store, wanted, found));
    typed.value = "";
    field.current?.blur();
  };
  return (
    <form class="go-to" onSubmit={go}>
      <input
        ref={field}
        type="text"
        inputMode="numeric"
        aria-label="Go to step"
        title="A step, a time since the beginning (12.5s, 3:20), or a time of the day where the trace tells it (14:03:07) (g)"
        placeholder="step or time"
        value={typed.value}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
        }}
      />
    </form>
  );
}

/** In the lanes if they are open, else in the Timeline: no other view shows a single step. */
function lookAt(store: TraceStore, row: Row): void {
  const from = tab.peek();
  if (from === "requests" && lanesShown()) revealInLanes(store.rows, row);
  else if (from !== "timeline") {
    showTab("timeline");
    const left = from === "requests" ? "The table of requests" : TAB_TITLES[from];
    announce(`${left} shows no single step: this is the Timeline`);
  }
  focus(row);
  if (tab.peek() === "timeline" && !readable.peek()) showReadable();
}

function noStep({ rows, steps: { number } }: TraceStore, wanted: number, found: number): string {
  const none = `There is no step ${count(wanted)}`;
  if (wanted > number[rows - 1]) return `${none}: the run ends at step ${count(number[rows - 1])}`;
  if (wanted < number[0]) return `${none}: the run begins at step ${count(number[0])}`;
  return `${none}: this is the nearest, ${count(found)}`;
}

export function ThemeButton() {
  const dark = themeName.value === "dark";
  return (
    <button
      type="button"
      class="icon"
      aria-label={dark ? "Light colours" : "Dark colours"}
      title={dark ? "Light colours" : "Dark colours"}
      onClick={() => {
        chooseTheme(dark ? "light" : "dark");
      }}
    >
      ◐
    </button>
  );
}
