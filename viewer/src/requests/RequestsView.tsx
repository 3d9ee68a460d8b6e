import { useEffect, useMemo } from "preact/hooks";
import { lookStyle, PHASES, PINNED } from "../charts/tones";
import { lanes as allLanes } from "../data";
import type { Row } from "../data/model/columns";
import type { Lanes } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";
import { thereIn } from "../data/requestTable";
import { count } from "../format";
import type { ThemeName } from "../palette";
import { axisKind } from "../state/axis";
import { focus } from "../state/moves";
import {
  extra,
  filter,
  focusRequest,
  focusRow,
  lettersAreOff,
  revision,
  selection,
  setExtra,
  themeName,
  trace,
} from "../state/store";
import { useComputed } from "../statistics/useStatistics";
import { BY_KEY } from "./GroupTable";
import { LaneCanvas } from "./LaneCanvas";
import { LaneCache } from "./lanes";
import { laneTrait } from "./laneTrait";
import { OfPart, partOf } from "./OfPart";
import { ORDERS, type Order, orderLanes } from "./order";
import { RequestTable } from "./RequestTable";
import { both } from "./table";
import { useMeant } from "./useMeant";
import { laneKey, panLanes, SHOWN_KEY, windowOf, ZOOM_KEY, zoomLanes } from "./window";
import "./requests.css";

/** The Requests tab: every request in figures, or one lane per job, and what became of each of its turns. */
export function RequestsView() {
  const store = trace.value;
  if (!store || store.rows === 0) return <p class="quiet">There are no requests to show.</p>;
  return <OfTrace key={store.key} store={store} />;
}

function OfTrace({ store }: { store: TraceStore }) {
  const shown = extra.value[SHOWN_KEY] ?? "";
  const grouped = shown === "groups";
  const lanes = !grouped && shown !== "table";
  return (
    <div class="requests">
      <fieldset class="sorts requests-switch">
        <legend class="hidden-text">Show the requests as</legend>
        <button type="button" aria-pressed={lanes} onClick={() => setExtra(SHOWN_KEY, "")}>
          Lanes
        </button>
        <button type="button" aria-pressed={shown === "table"} onClick={() => setExtra(SHOWN_KEY, "table")}>
          Table
        </button>
        <button type="button" aria-pressed={grouped} onClick={() => setExtra(SHOWN_KEY, "groups")}>
          Groups
        </button>
      </fieldset>
      {lanes ? <AsLanes store={store} /> : <RequestTable store={store} grouped={grouped} />}
    </div>
  );
}

function AsLanes({ store }: { store: TraceStore }) {
  const changed = revision.value;
  const { value: lanes, failure } = useComputed<Lanes>(() => allLanes(store), [store, changed], 0);
  const part = partOf(store);
  const requests = useMeant(store, part);
  // As the table is: of those that were there in the selection.
  const kept = useMemo(
    () => both(requests, part && thereIn(store, part)),
    [requests, store, lanes, part?.first, part?.last],
  );
  const order = orderOf(extra.value["lanes"]);
  const axis = axisKind.value;
  const shown = useMemo(() => (lanes ? orderLanes(store, lanes, order, kept) : null), [store, lanes, order, kept]);
  const group = extra.value[BY_KEY];
  const { terms } = filter.value;
  const trait = useMemo(() => laneTrait(store, terms, group), [store, terms, group]);
  const cache = useMemo(() => (lanes ? new LaneCache(lanes, trait) : null), [lanes, trait]);
  const hasJobs = store.jobs.count > 0;
  useLaneKeys(store.rows);
  if (failure) return <p role="alert">The lanes could not be made: {failure}</p>;
  if (!lanes || !shown || !cache) return <p class="quiet">Following each request through the steps …</p>;
  return (
    <>
      <Bar
        lanes={lanes}
        jobs={hasJobs}
        shown={shown.length}
        order={order}
        theme={themeName.value}
        part={part !== null}
      />
      {shown.length === 0 ? (
        <p class="quiet">
          {lanes.count === 0
            ? "The trace names no requests."
            : part
              ? "No job passes the filter and was there in the selection."
              : "No job passes the filter."}
        </p>
      ) : (
        <LaneCanvas
          store={store}
          cache={cache}
          order={shown}
          sort={order}
          head={[hasJobs ? "job" : "request", trait.name, ...(hasJobs ? ["turns"] : []), "waited"].join(" · ")}
          view={windowOf(extra.value[ZOOM_KEY], store.rows)}
          axis={axis}
          theme={themeName.value}
          focusRow={focusRow.value}
          focusRequest={focusRequest.value}
          selection={selection.value}
          meant={requests}
          onSelect={(request, row) => focus(inLife(store, request, row), request)}
          onRow={(row) => focus(row, -1)}
          onRange={(range) => {
            selection.value = range;
          }}
          onZoom={(factor, anchor) => zoomLanes(store.rows, factor, anchor)}
          onPan={(share) => panLanes(store.rows, share)}
        />
      )}
    </>
  );
}

/** W A S D and F move the lanes while they are open, wherever the focus is, but for text fields. */
export function useLaneKeys(rows: number): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
      if (typing || lettersAreOff() || event.ctrlKey || event.metaKey || event.altKey || !laneKey(event.key, rows))
        return;
      event.preventDefault();
      event.stopPropagation();
    };
    document.addEventListener("keydown", pressed, true);
    return () => document.removeEventListener("keydown", pressed, true);
  }, [rows]);
}

/** The row itself if the request was there then, else the nearest one at which it was. */
function inLife(store: TraceStore, request: number, row: Row): Row {
  const { firstRow, lastRow } = store.requests;
  return Math.min(Math.max(row, firstRow[request]), Math.max(lastRow[request], firstRow[request]));
}

function orderOf(name: string | undefined): Order {
  return name !== undefined && name in ORDERS ? (name as Order) : "arrival";
}

interface BarProps {
  lanes: Lanes;
  /** The trace names some. */
  jobs: boolean;
  shown: number;
  order: Order;
  theme: ThemeName;
  /** Only the lanes of those that were there in a part of the run. */
  part: boolean;
}

function Bar({ lanes, jobs, shown, order, theme, part }: BarProps) {
  return (
    <div class="requests-bar">
      <span role="status">
        <span class="number">{count(shown)}</span>
        {shown < lanes.count ? ` of ${count(lanes.count)}` : ""} {lanes.count === 1 ? "lane" : "lanes"}, one per{" "}
        {jobs ? "job" : "request"} <OfPart part={part} />
      </span>
      <label>
        sort by{" "}
        <select value={order} onChange={(event) => setExtra("lanes", event.currentTarget.value)}>
          {Object.entries(ORDERS).map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
      </label>
      <ul class="keys">
        {[...Object.values(PHASES), PINNED].map((look) => (
          <li key={look.words}>
            <span class="key" style={lookStyle(look, theme)} aria-hidden="true" /> {look.words}{" "}
            <span aria-hidden="true" class="quiet">
              {look.sign}
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}
