/** The Overview: what was wrong, when, which check it was, and whose requests; the whole run on one screen. */

import { useMemo, useRef } from "preact/hooks";
import type { Finding } from "../advice/rules";
import { useSize } from "../charts/useSize";
import { overTime, requestFigures, statistics as statisticsOf } from "../data";
import { blame as blameOf } from "../data/blame";
import type { Range } from "../data/model/columns";
import type { OverTime } from "../data/model/overTime";
import type { Blame, Pressure } from "../data/model/pressure";
import type { RequestFigures } from "../data/model/requestFigures";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { pressureOfRange, pressureOfRun, SLICES } from "../data/since";
import { useLaneKeys } from "../requests/RequestsView";
import { panLanes, windowOf, ZOOM_KEY, zoomLanes } from "../requests/window";
import { Guarded } from "../shell/Guarded";
import { bounds } from "../state/bounds";
import {
  extra,
  LAST_KEY,
  loading,
  other,
  revision,
  scope,
  selection,
  setExtra,
  themeName,
  trace,
  type View,
  wholeRange,
} from "../state/store";
import { useComputed, useStatistics } from "../statistics/useStatistics";
import { ideasIn } from "./causes";
import { blamedIncidents, type Incident, type OtherIncident, otherIncidents, type Worst, worstIn } from "./incidents";
import { Lists } from "./Lists";
import { usePicture } from "./picture";
import { Sentence } from "./Sentence";
import { Tiles } from "./Tiles";
import { type Navigation, Tracks } from "./Tracks";
import { isQuiet, rowsOf } from "./words";
import "./overview.css";

/** Slices of the clock in a tile. */
const SPARKS = 40;
/** Pixels of a verdict beside which all stands on a laptop's screen: of a longer one the picture gives way. */
const VERDICT = 108;
const NO_INCIDENTS: readonly Incident[] = [];

export function OverviewView() {
  const store = trace.value;
  const range = scope.value;
  if (!store || !range) return <p class="quiet">There are no steps to show.</p>;
  return <OfTrace key={store.key} store={store} range={range} />;
}

/** What the parts of the screen show; null until it is there. */
export interface Found {
  statistics: Statistics | null;
  advice: Finding[] | null;
  pressure: Pressure | null;
  /** Of the selection, or of the whole run without one. */
  scoped: Pressure | null;
  /** Of the whole run, whatever is selected or in view. */
  run: Pressure | null;
  stretches: Worst["stretches"];
  late: boolean;
  blame: Blame | null;
  /** At other times. */
  others: OtherIncident[];
  sparks: OverTime | null;
  requests: RequestFigures | null;
}

function OfTrace({ store, range }: { store: TraceStore; range: Range }) {
  const verdict = useRef<HTMLDivElement>(null);
  const { height } = useSize(verdict);
  const changed = revision.value;
  const { value, busy } = useStatistics(store, changed, range);
  const shown = visible(store, range);
  const picture = usePicture(store, changed, shown, { slices: SLICES })?.pressure ?? null;
  const pressed = useOf(store, changed, range, () => pressureOfRange(store, range));
  const whole = pressed.found;
  const ofRun = useOf(store, changed, range, () => pressureOfRun(store, range));
  const { stretches, late } = useMemo(
    () => worstIn(store, range, whole, ofRun.found),
    // Not the range itself: whatever the address keeps makes another one, as a picture that is moved.
    [store, changed, range.first, range.last, whole, ofRun.found],
  );
  const worst = stretches[0];
  const blamed = worst ? rowsOf(store, worst) : range;
  const accused = useOf<Blame | null>(
    store,
    changed,
    blamed,
    (signal) => (whole ? blameOf(store, blamed, signal) : Promise.resolve(null)),
    whole === null,
  );
  const blame = accused.found;
  const looked = useMemo(() => ({ value, stretches }), [value, stretches]);
  const ideas = useOf<Finding[] | null>(
    store,
    changed,
    range,
    (signal) => (value && pressed.known ? ideasIn(store, range, value, stretches, signal) : Promise.resolve(null)),
    looked,
  );
  const besides =
    worst && whole && ofRun.found && !isQuiet(stretches, value?.found ?? null)
      ? otherIncidents(store, { found: whole, run: ofRun.found }, worst, value?.found ?? null)
      : NO_INCIDENTS;
  const others = useOf<OtherIncident[]>(
    store,
    changed,
    range,
    (signal) => blamedIncidents(store, besides, signal),
    besides.map(({ stretch }) => `${stretch.begin} ${stretch.end}`).join(),
  );
  const { ttft, tpot, e2e } = bounds.value;
  const sparks = useComputed<OverTime | null>(
    (signal) => overTime(store, range, Math.min(SPARKS, range.last - range.first + 1), { ttft, tpot, e2e }, signal),
    [store, changed, range.first, range.last, ttft, tpot, e2e],
    200,
  ).value;
  const requests = useComputed<RequestFigures>((signal) => requestFigures(store, signal), [store, changed], 0).value;
  const beside = other.value;
  const against = useComputed<Statistics | null>(
    (signal) => (beside ? statisticsOf(beside, wholeRange(beside) as Range, signal) : Promise.resolve(null)),
    [beside, changed],
    0,
  ).value;
  const { rows } = store;
  useLaneKeys(rows);
  const navigation: Navigation = {
    view: shown,
    zoom: (factor, anchor) => zoomLanes(rows, factor, anchor),
    pan: (share) => panLanes(rows, share),
    whole: () => setExtra(ZOOM_KEY, ""),
  };
  const found: Found = {
    ...{ statistics: value?.found ?? null, advice: ideas.found },
    ...{ pressure: picture, scoped: whole, run: ofRun.found, stretches, late, sparks, requests },
    // Of another stretch, as while a trace is read, it would name the wrong ones.
    blame: accused.fresh ? blame : null,
    others: others.fresh ? (others.found ?? []) : [],
  };
  // While a trace is followed there is always something newer.
  const following = store.stage === "following";
  const settled =
    value?.version === store.version &&
    !busy &&
    pressed.fresh &&
    ofRun.fresh &&
    accused.fresh &&
    ideas.fresh &&
    others.fresh;
  const reading = loading.value?.target === "trace" ? loading.value : null;
  const provisional = reading !== null || !(settled || following);
  return (
    <div class={`overview${provisional ? " provisional" : ""}`} data-picture="whole" aria-busy={provisional}>
      <div ref={verdict}>
        <Guarded what="the verdict">
          <Sentence
            store={store}
            range={range}
            found={found}
            settled={pressed.known && !(whole && busy && !value)}
            {...{ reading, provisional }}
          />
        </Guarded>
      </div>
      <Guarded what="the figures">
        <Tiles store={store} found={found} against={against} theme={themeName.value} />
      </Guarded>
      <div class="overview-body">
        <Guarded what="the picture of the run">
          <Tracks
            store={store}
            found={found}
            navigation={navigation}
            theme={themeName.value}
            selection={selection.value}
            spared={Math.max(height - VERDICT, 0)}
          />
        </Guarded>
        <Guarded what="the lists">
          <Lists store={store} found={found} />
        </Guarded>
      </div>
    </div>
  );
}

/** Something computed of a range; `fresh`: of the trace as it is, and of this range. */
function useOf<T>(
  store: TraceStore,
  changed: number,
  { first, last }: Range,
  work: (signal: AbortSignal) => Promise<T>,
  also: unknown = null,
): { found: T | null; fresh: boolean; known: boolean } {
  const { value } = useComputed(
    async (signal) => {
      const { version } = store;
      return { version, first, last, also, found: await work(signal) };
    },
    [store, changed, first, last, also],
    120,
  );
  const fresh = value?.version === store.version && value.first === first && value.last === last && value.also === also;
  return { found: value?.found ?? null, fresh, known: value !== null };
}

/** What is in the picture: the whole run or its last seconds, or what was zoomed to. */
function visible(store: TraceStore, { first, last }: Range): View {
  if (!extra.value[ZOOM_KEY] && extra.value[LAST_KEY] && !selection.value) return { first, last: last + 1 };
  return windowOf(extra.value[ZOOM_KEY], store.rows);
}
