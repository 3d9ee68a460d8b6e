/** The Overview: what was wrong, when, which check it was, and whose requests; the whole run on one screen. */

import type { Finding } from "../advice/rules";
import { overTime, requestFigures, statistics as statisticsOf } from "../data";
import { blame as blameOf } from "../data/blame";
import type { Range } from "../data/model/columns";
import type { OverTime } from "../data/model/overTime";
import type { Blame, Pressure, Stretch } from "../data/model/pressure";
import type { RequestFigures } from "../data/model/requestFigures";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { pressure as pressureOf, stretches as stretchesOf } from "../data/pressure";
import { rowAtTime } from "../data/store";
import { codeOf } from "../data/wording";
import { useLaneKeys } from "../requests/RequestsView";
import { panLanes, windowOf, ZOOM_KEY, zoomLanes } from "../requests/window";
import { Guarded } from "../shell/Guarded";
import { bounds } from "../state/bounds";
import {
  extra,
  LAST_KEY,
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
import { added, useComputed, useStatistics } from "../statistics/useStatistics";
import { Lists } from "./Lists";
import { usePicture } from "./picture";
import { Sentence } from "./Sentence";
import { Tiles } from "./Tiles";
import { type Navigation, Tracks } from "./Tracks";
import { isQuiet } from "./words";
import "./overview.css";

/** Slices of the clock in the picture, and in a tile. */
const SLICES = 300;
const SPARKS = 40;
const WORST = 3;

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
  stretches: Stretch[];
  blame: Blame | null;
  sparks: OverTime | null;
  requests: RequestFigures | null;
}

function OfTrace({ store, range }: { store: TraceStore; range: Range }) {
  const changed = revision.value;
  const { value, busy } = useStatistics(store, changed, range);
  const shown = visible(store, range);
  const picture = usePicture(store, changed, shown, { slices: SLICES })?.pressure ?? null;
  const whole = useComputed<Pressure | null>(
    (signal) => pressureOf(store, range, SLICES, signal),
    [store, changed, range.first, range.last],
    120,
  ).value;
  const stretches = whole ? stretchesOf(whole, WORST) : [];
  const worst = stretches[0];
  const blamed = worst ? rowsOf(store, worst) : range;
  const blame = useComputed<Blame | null>(
    (signal) => (whole ? blameOf(store, blamed, signal) : Promise.resolve(null)),
    [store, changed, whole === null, blamed.first, blamed.last],
    120,
  ).value;
  // What costs little of the whole run may be all that a bad minute suffered from.
  const about = (finding: Finding) => finding.reasons.includes(codeOf(store.shown[worst?.shown]?.name ?? ""));
  const unanswered = value && !isQuiet(stretches, value.found) && !value.advice.some(about);
  const ofWorst = useComputed<Finding[]>(
    async (signal) => (unanswered ? (await added(store, blamed, signal)).advice.filter(about) : []),
    [store, changed, unanswered, blamed.first, blamed.last],
    120,
  ).value;
  const ideas = value && [...(ofWorst ?? []), ...value.advice].sort((a, b) => Number(about(b)) - Number(about(a)));
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
    ...{ statistics: value?.found ?? null, advice: unanswered && !ofWorst ? null : ideas },
    ...{ pressure: picture, stretches, sparks, requests },
    // Of another stretch, as while a trace is read, it would name the wrong ones.
    blame: blame?.range.first === blamed.first && blame.range.last === blamed.last ? blame : null,
  };
  return (
    <div class="overview" data-picture="whole" aria-busy={busy || store.stage === "reading"}>
      <Guarded what="the verdict">
        <Sentence store={store} range={range} found={found} settled={whole !== null || !busy} />
      </Guarded>
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
          />
        </Guarded>
        <Guarded what="the lists">
          <Lists store={store} found={found} />
        </Guarded>
      </div>
    </div>
  );
}

/** What is in the picture: the whole run or its last seconds, or what was zoomed to. */
function visible(store: TraceStore, { first, last }: Range): View {
  if (!extra.value[ZOOM_KEY] && extra.value[LAST_KEY] && !selection.value) return { first, last: last + 1 };
  return windowOf(extra.value[ZOOM_KEY], store.rows);
}

export function rowsOf(store: TraceStore, { begin, end }: Pick<Stretch, "begin" | "end">): Range {
  return { first: rowAtTime(store, begin), last: Math.max(rowAtTime(store, end - 1e-9), rowAtTime(store, begin)) };
}
