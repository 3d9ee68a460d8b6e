import { endOfRow } from "../data/lives";
import type { Range } from "../data/model/columns";
import type { Outcomes } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { count, duration, outcomesText } from "../format";
import { Guarded } from "../shell/Guarded";
import { forgetPlaces } from "../shell/keptScroll";
import { clearSelection, focus, showTab } from "../state/moves";
import { extra, filterText, revision, scope, selection, themeName, trace } from "../state/store";
import { FiguresSection } from "./FiguresSection";
import { within } from "./filters";
import { HistogramsSection } from "./HistogramsSection";
import { LimitsSection } from "./LimitsSection";
import { OccupancyChart } from "./OccupancyChart";
import { LatencySection, OverTimeSection } from "./OverTimeSection";
import { SqlSection } from "./SqlSection";
import { useLevels, useStatistics } from "./useStatistics";
import "./statistics.css";

/** The Statistics tab: everything added up, over the selection if there is one. */
export function StatisticsView() {
  const store = trace.value;
  const range = scope.value;
  if (!store || !range) return <p class="quiet">There are no steps to add up.</p>;
  return <OfTrace key={store.key} store={store} range={range} />;
}

function OfTrace({ store, range }: { store: TraceStore; range: Range }) {
  const { value, busy, failure } = useStatistics(store, revision.value, range);
  const found = value?.found;
  const settled = !busy && value?.version === store.version && store.stage !== "requests" && store.stage !== "reading";
  const levels = useLevels(store, revision.value);
  const chart = {
    store,
    levels,
    range,
    theme: themeName.value,
    onRange: select,
    onSelectStep: (row: number) => focus(row),
  };
  return (
    <div class="statistics" data-picture="whole" aria-busy={!settled}>
      <h2 class="hidden-text">Statistics</h2>
      <Scope store={store} range={range} busy={busy} outcomes={found?.outcomes} />
      {failure && <p role="alert">The statistics could not be computed: {failure}</p>}
      {found && (
        <Guarded what="what limited admission">
          <LimitsSection store={store} found={found} onFilter={showSteps} />
        </Guarded>
      )}
      <section aria-labelledby="blocks-title">
        <h3 id="blocks-title">KV blocks</h3>
        <p class="quiet">Drag over a chart to select steps; click to look at one.</p>
        <Guarded what="the KV blocks">
          <OccupancyChart {...chart} pool="vram" />
          <OccupancyChart {...chart} pool="dram" />
        </Guarded>
      </section>
      <Guarded what="the lines over time">
        <OverTimeSection {...chart} statistics={found ?? null} revision={revision.value} />
      </Guarded>
      {value && (
        <Guarded what="the figures">
          <LatencySection
            found={value.found}
            theme={themeName.value}
            onRequests={(text, sorting) => showRequests(text + within(store, range), sorting)}
          />
          <HistogramsSection store={store} found={value.found} theme={themeName.value} onFilter={showSteps} />
          <FiguresSection
            store={store}
            found={value.found}
            scope={`${store.name}, ${steps(store, range)}`}
            onFilter={showSteps}
          />
        </Guarded>
      )}
      <SqlSection store={store} />
    </div>
  );
}

/** The steps behind a figure: the filter is set to them and the Timeline shows what passes. */
function showSteps(text: string): void {
  filterText.value = text.trim();
  showTab("timeline");
}

/** Some requests, in the order of a column of their table. */
function showRequests(text: string, sorting: string): void {
  forgetPlaces();
  filterText.value = text;
  extra.value = { ...extra.value, show: "table", sort: sorting };
  showTab("requests");
}

function select(range: Range): void {
  selection.value = range;
}

function steps(store: TraceStore, range: Range): string {
  const { number } = store.steps;
  return `steps ${count(number[range.first])}–${count(number[range.last])}`;
}

interface ScopeProps {
  store: TraceStore;
  range: Range;
  busy: boolean;
  outcomes: Outcomes | undefined;
}

function Scope({ store, range, busy, outcomes }: ScopeProps) {
  const rows = range.last - range.first + 1;
  const seconds = endOfRow(store, range.last) - store.steps.ts[range.first];
  return (
    <p class="scope" role="status">
      <strong>{selection.value ? "Selection" : "Whole run"}</strong>: {steps(store, range)} (
      <span class="number">{count(rows)}</span>
      {selection.value ? ` of ${count(store.rows)}` : ""}){Number.isFinite(seconds) && `, ${duration(seconds)}`}
      {outcomes && outcomes.arrived > 0 && `; requests: ${outcomesText(outcomes)}`}
      {selection.value && (
        <button type="button" onClick={clearSelection}>
          whole run
        </button>
      )}
      {busy && <span class="quiet"> adding up …</span>}
    </p>
  );
}
