/** The Overview: what was wrong, when, which check it was, and whose requests; the whole run on one screen. */

import { useMemo, useRef } from "preact/hooks";
import { useSize } from "../charts/useSize";
import { overTime, requestFigures, statistics as statisticsOf } from "../data";
import type { Range } from "../data/model/columns";
import type { OverTime } from "../data/model/overTime";
import type { Pressure, Stretch } from "../data/model/pressure";
import type { RequestFigures } from "../data/model/requestFigures";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { ofRows, stretches as worstOf } from "../data/pressure";
import { pressureOfRange, SLICES } from "../data/since";
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
import { type Answer, answerTo } from "./answer";
import { Lists } from "./Lists";
import { usePicture } from "./picture";
import { Sentence } from "./Sentence";
import { Tiles } from "./Tiles";
import { type Navigation, Tracks } from "./Tracks";
import "./overview.css";

/** Slices of the clock in a tile. */
const SPARKS = 40;
/** Pixels of a verdict beside which all stands on a laptop's screen: of a longer one the picture gives way. */
const VERDICT = 108;
/** Stretches that are listed. */
const WORST = 3;
/** Steps after which a run that is followed is asked about again. */
const ASKED_ROWS = 500;

export function OverviewView() {
  const store = trace.value;
  const range = scope.value;
  if (!store || !range) return <p class="quiet">There are no steps to show.</p>;
  return <OfTrace key={store.key} store={store} range={range} />;
}

/** What the parts of the screen show; null until it is there. */
export interface Found {
  statistics: Statistics | null;
  pressure: Pressure | null;
  /** Of the selection, or of the whole run without one. */
  scoped: Pressure | null;
  stretches: Stretch[];
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
  const stretches = useMemo(
    () => (whole ? worstOf(whole, WORST).map((stretch) => ofRows(store, whole, stretch)) : []),
    // Not the range itself: whatever the address keeps makes another one, as a picture that is moved.
    [store, changed, range.first, range.last, whole],
  );
  const following = store.stage === "following";
  const reading = loading.value?.target === "trace" ? loading.value : null;
  const isRead = store.stage !== "reading" && store.stage !== "requests";
  // While a trace is followed it is asked about anew now and then, not with each step.
  const asked = following ? Math.floor(range.last / ASKED_ROWS) : range.last;
  const answer = useComputed<Answer | null>(
    (signal) => (isRead ? answerTo(store, range, signal) : Promise.resolve(null)),
    [store, isRead, following ? 0 : changed, range.first, asked],
    200,
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
    ...{ statistics: value?.found ?? null, pressure: picture, scoped: whole, stretches, sparks, requests },
  };
  // While a trace is followed there is always something newer.
  const settled = value?.version === store.version && !busy && pressed.fresh && !answer.busy;
  const provisional = reading !== null || !(settled || following);
  return (
    <div class={`overview${provisional ? " provisional" : ""}`} data-picture="whole" aria-busy={provisional}>
      <div ref={verdict}>
        <Guarded what="the verdict">
          <Sentence {...{ store, range, answer, reading }} statistics={found.statistics} />
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
