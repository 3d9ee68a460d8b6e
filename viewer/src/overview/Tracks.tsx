import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { lookStyle, PHASES } from "../charts/tones";
import { useSize } from "../charts/useSize";
import { life } from "../data";
import { baseOf, clockOf, clockWords, markText, momentText } from "../data/clock";
import { jobAndTurn, shortId } from "../data/labels";
import type { Range, Row } from "../data/model/columns";
import type { TokenTrack } from "../data/model/pressure";
import type { RequestFigures } from "../data/model/requestFigures";
import type { TraceStore } from "../data/model/trace";
import { isCutShort } from "../data/status";
import { count, duration, fixed, milliseconds, percent, plural } from "../format";
import type { ThemeName } from "../palette";
import { laneTrait } from "../requests/laneTrait";
import { engineName, engines, readEngines } from "../state/engines";
import { showEngine } from "../state/loader";
import { marks } from "../state/marks";
import { clearSelection, focus } from "../state/moves";
import { focusRequest, focusRow, matches, selection as selected, type View } from "../state/store";
import { middle } from "../text";
import type { Found } from "./OverviewView";
import { requestWords } from "./requests";
import {
  drawTracks,
  ENGINE,
  enginesTop,
  heightOf,
  LABEL,
  LANE,
  lanesTop,
  type TracksScene,
  timeAt,
} from "./tracksDraw";
import { useEngines } from "./useEngines";

/** What moves the picture; rows, whole or not. */
export interface Navigation {
  /** In view. */
  view: View;
  zoom(factor: number, anchor: number): void;
  pan(share: number): void;
  whole(): void;
}

interface TracksProps {
  store: TraceStore;
  found: Pick<Found, "pressure" | "stretches" | "requests">;
  takers?: readonly TokenTrack[];
  navigation: Navigation;
  theme: ThemeName;
  selection: Range | null;
  /** Pixels of its height that are wanted above it. */
  spared?: number;
  /** Drawn under the picture, at its right. */
  children?: ComponentChildren;
  onStep?(row: Row): void;
}

const LANES = 8;
/** Of the name of a lane. */
const CHARACTERS = 18;
/** Pixels of the stacked area; on a screen that is higher than a laptop's it takes a part of what is left. */
const AREA = 170;
const LAPTOP = 820;
const MOST_AREA = 300;
const LEAST_AREA = 80;
const AREA_NARROW = 120;
/** No request waited. */
const AREA_EMPTY = 44;
/** A drag of fewer pixels is a click. */
const DRAG = 4;

/** One axis of time from left to right for everything. */
export function Tracks(props: TracksProps) {
  const { store, found, takers, navigation, theme, selection, spared = 0, children, onStep } = props;
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(frame);
  const [at, setAt] = useState(Number.NaN);
  const dragged = useRef(false);
  const [drag, setDrag] = useState<{ begin: number; end: number } | null>(null);
  const { pressure, requests, stretches } = found;
  const area =
    pressure?.reasons.length === 0 ? AREA_EMPTY : width < 600 ? AREA_NARROW : Math.max(tall() - spared, LEAST_AREA);
  const { view } = navigation;
  const [first, last] = [Math.floor(view.first), Math.ceil(view.last) - 1];
  const order = useMemo(() => bySlowness(requests), [requests]);
  const part = selection ?? { first, last };
  const lanes = useMemo(() => slowest(store, requests, order, part), [store, order, part.first, part.last]);
  const clock = clockOf(store);
  const others = useEngines(
    { begin: clock.at(view.first), end: clock.at(view.last) },
    clock.timed && view.first <= 0 && view.last >= store.rows,
  );
  const spanOf = (range: Range) => ({ begin: clock.at(range.first), end: clock.at(range.last + 1) });
  const chosen = drag ?? (selection ? spanOf(selection) : null);
  const keptRows = matches.value.rows;
  const kept = useMemo(() => keptRows && runsOf(keptRows).map(spanOf), [keptRows, store]);
  const tick = (ts: number) => (clock.timed ? momentText(store, ts) : count(store.steps.number[clock.rowAt(ts)]));
  const scene: TracksScene | null = pressure && {
    ...{ store, pressure, theme, width, area, lanes, at, chosen, kept, timed: clock.timed },
    takers: (takers ?? []).map((track) => ({ ...track, name: requestWords(store, track.request) })),
    window: others.window,
    ...{ engines: others.drawn, engineName: engineName.value },
    marks: marks.value,
    worst: stretches[0] ?? null,
    focused: focusRow.value < 0 ? Number.NaN : clock.at(focusRow.value),
    focusRequest: focusRequest.value,
    mark: (ts) => (clock.timed ? markText(store, ts) : tick(ts)),
    base: clock.timed ? baseOf(store) : 0,
    tick,
  };
  useLayoutEffect(() => {
    if (canvas.current && scene && width > 0) drawTracks(canvas.current, scene);
  });
  const isZoomed = view.first > 0 || view.last < store.rows;
  if (!scene || !pressure) {
    return (
      <div class="tracks" ref={frame}>
        <p class="quiet">{clock.timed ? "Drawing the run …" : "The trace tells no times: see the Timeline."}</p>
      </div>
    );
  }
  const placed = (event: MouseEvent, ground: HTMLElement) => {
    const box = ground.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const onPointerDown = (event: PointerEvent) => {
    const ground = event.currentTarget as HTMLElement;
    dragged.current = false;
    if (event.button !== 0 || event.pointerType === "touch") return;
    const from = placed(event, ground);
    ground.setPointerCapture(event.pointerId);
    const done = new AbortController();
    let span: { begin: number; end: number } | null = null;
    const move = (next: PointerEvent) => {
      const { x } = placed(next, ground);
      if (!span && Math.abs(x - from.x) < DRAG) return;
      const ends = [timeAt(scene, from.x), timeAt(scene, x)].sort((a, b) => a - b);
      span = { begin: ends[0], end: ends[1] };
      setDrag(span);
    };
    const up = () => {
      done.abort();
      setDrag(null);
      dragged.current = span !== null;
      if (span) selected.value = { first: clock.rowAt(span.begin), last: clock.rowAt(span.end) };
    };
    ground.addEventListener("pointermove", move, { signal: done.signal });
    ground.addEventListener("pointerup", up, { signal: done.signal });
    ground.addEventListener("pointercancel", up, { signal: done.signal });
  };
  const onClick = (event: MouseEvent) => {
    // The end of a drag.
    if (dragged.current) {
      dragged.current = false;
      return;
    }
    const { x, y } = placed(event, event.currentTarget as HTMLElement);
    const engine = others.drawn[Math.floor((y - enginesTop(scene)) / ENGINE)];
    if (engine && y >= enginesTop(scene)) {
      showEngine(engine);
      return;
    }
    const lane = lanes[Math.floor((y - lanesTop(scene)) / LANE)];
    if (y >= lanesTop(scene) && lane) {
      focus(Math.max(store.requests.firstRow[lane.life.request], 0), lane.life.request);
    } else if (x >= LABEL) focus(clock.rowAt(timeAt(scene, x)), -1);
  };
  return (
    <div class="tracks" ref={frame}>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the lists beside it lead to the same */}
      <div
        class="tracks-ground"
        role="img"
        aria-label={aloud(store, found)}
        onPointerDown={onPointerDown}
        onClick={onClick}
        onDblClick={(event) => onStep?.(clock.rowAt(timeAt(scene, placed(event, event.currentTarget).x)))}
        onPointerMove={(event) => {
          const { x } = placed(event, event.currentTarget);
          setAt(x >= LABEL ? timeAt(scene, x) : Number.NaN);
        }}
        onPointerLeave={() => setAt(Number.NaN)}
        onWheel={(event) => {
          if (!event.ctrlKey && !event.shiftKey) return;
          event.preventDefault();
          const anchor = clock.rowAt(timeAt(scene, placed(event, event.currentTarget).x));
          if (event.ctrlKey) navigation.zoom(Math.exp(event.deltaY * 0.004), anchor);
          else navigation.pan(Math.sign(event.deltaY || event.deltaX) * 0.15);
        }}
      >
        <canvas ref={canvas} style={{ height: `${heightOf(scene)}px` }} />
      </div>
      <p class="tracks-foot">
        <output>
          {Number.isNaN(at) ? (
            <>
              {clock.timed && `${clockWords(store)} `}
              <span class="with-pointer">Drag to select, click for a step or a request, W A S D to zoom.</span>
            </>
          ) : (
            under(scene, at)
          )}
        </output>
        {isZoomed && (
          <button type="button" onClick={navigation.whole}>
            whole run
          </button>
        )}
        {selection && (
          <button type="button" onClick={clearSelection}>
            clear the selection
          </button>
        )}
        {engines.value.length > others.drawn.length && (
          <button type="button" onClick={() => void readEngines()}>
            with {plural(engines.value.length, "other engine")}
          </button>
        )}
        {others.drawn.map((engine) => (
          <button
            type="button"
            key={engine.name}
            title="The same screen of this engine; the one that is shown stands below it then"
            onClick={() => showEngine(engine)}
          >
            {engine.name}
          </button>
        ))}
        {children}
        <span class="spring" />
        {lanes.length > 0 && (
          <span class="keys">
            {Object.values(PHASES).map((look) => (
              <span key={look.words}>
                <span class="key" style={lookStyle(look, theme)} aria-hidden="true" /> {look.words}
              </span>
            ))}
          </span>
        )}
      </p>
    </div>
  );
}

function tall(): number {
  return Math.min(AREA + Math.max(innerHeight - LAPTOP, 0), MOST_AREA);
}

/** Rows that follow each other, as ranges; at most so many that they can be distinguished. */
function runsOf(rows: Int32Array): Range[] {
  const runs: Range[] = [];
  const least = Math.max(Math.floor((rows[rows.length - 1] - rows[0]) / 2_000), 1);
  for (const row of rows) {
    const last = runs.at(-1);
    if (last && row - last.last <= least) last.last = row;
    else runs.push({ first: row, last: row });
  }
  return runs;
}

/** How long a request took to its first token, or else waited. */
function slowness(found: RequestFigures, index: number): number {
  return Math.max(found.ttft[index] || 0, found.waited[index] || 0);
}

/** Those that took or waited for any time, the slowest first. */
function bySlowness(found: RequestFigures | null): Int32Array {
  if (!found) return new Int32Array();
  const times = Float64Array.from({ length: found.count }, (_, index) => slowness(found, index));
  const slow = Int32Array.from(times.keys()).filter((index) => times[index] > 0);
  return slow.sort((a, b) => times[b] - times[a]);
}

/** The slowest that are in a range of rows. */
function slowest(
  store: TraceStore,
  found: RequestFigures | null,
  order: Int32Array,
  { first, last }: Range,
): TracksScene["lanes"] {
  const { firstRow, lastRow } = store.requests;
  const lanes: TracksScene["lanes"] = [];
  const trait = laneTrait(store, [], undefined);
  for (let at = 0; found && at < order.length && lanes.length < LANES; at++) {
    const request = found.request[order[at]];
    if (firstRow[request] > last || Math.max(lastRow[request], firstRow[request]) < first) continue;
    const job = store.requests.job[request];
    const { job: name, turn } = jobAndTurn(store.requests.ids[request], job < 0 ? null : store.jobs.ids[job]);
    const own = trait.text(request);
    const time = milliseconds(slowness(found, order[at]));
    const both = `${own} …${shortId(store.requests.ids[request].slice(-4))}`;
    const short = time.length + both.length < CHARACTERS ? both : own;
    const label = `${time} ${turn ? `${name} ${turn}` : job < 0 && own ? short : name}`;
    lanes.push({ life: life(store, request), label, cut: isCutShort(store, request) });
  }
  return lanes;
}

/** What is under the pointer. */
function under({ pressure, store, takers, timed, tick }: TracksScene, ts: number): string {
  const slice = Math.min(Math.max(Math.floor((ts - pressure.from) / pressure.width), 0), pressure.slices - 1);
  const held = pressure.reasons
    .filter((reason) => reason.held[slice] >= 0.05)
    .map((reason) => `${middle(store.shown[reason.shown].name, 24)} ${fixed(reason.held[slice], 1)}`);
  const took = takers
    .filter(({ perSecond }) => perSecond[slice] >= 0.1 * pressure.tokensPerSecond[slice])
    .map(({ name, perSecond }) => `${name} ${percent(perSecond[slice] / pressure.tokensPerSecond[slice])}`);
  return [
    timed ? tick(ts) : `step ${tick(ts)}`,
    held.length > 0 ? `held: ${held.join(", ")}` : "none held",
    `running ${fixed(pressure.running[slice], 1)}`,
    `KV ${percent(pressure.kv[slice])}`,
    `${count(pressure.tokensPerSecond[slice])} tokens/${timed ? "s" : "step"}${took.length > 0 ? `: ${took.join(", ")}` : ""}`,
  ].join(" · ");
}

function aloud(store: TraceStore, { pressure, stretches }: TracksProps["found"]): string {
  const reasons = pressure?.reasons.map(({ shown, lost }) => `${store.shown[shown].name} ${duration(lost)}`) ?? [];
  const [worst] = stretches;
  const when = worst ? `, worst from ${momentText(store, worst.begin)} to ${momentText(store, worst.end)}` : "";
  return `The run over time. Time lost: ${reasons.join(", ") || "none"}${when}`;
}
