import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { lookStyle, PHASES } from "../charts/tones";
import { useSize } from "../charts/useSize";
import { life } from "../data";
import { jobAndTurn } from "../data/labels";
import { endOfRow } from "../data/lives";
import type { Range } from "../data/model/columns";
import type { RequestFigures } from "../data/model/requestFigures";
import type { TraceStore } from "../data/model/trace";
import { isCutShort } from "../data/status";
import { rowAtTime } from "../data/store";
import { count, duration, fixed, milliseconds, percent } from "../format";
import type { ThemeName } from "../palette";
import { useLaneKeys } from "../requests/RequestsView";
import { panLanes, windowOf, ZOOM_KEY, zoomLanes } from "../requests/window";
import { marks } from "../state/marks";
import { focus } from "../state/moves";
import { extra, focusRequest, selection as selected, setExtra } from "../state/store";
import { middle } from "../text";
import type { Found } from "./OverviewView";
import { drawTracks, heightOf, LABEL, LANE, lanesTop, type TracksScene, timeAt } from "./tracksDraw";
import { clockText } from "./words";

interface TracksProps {
  store: TraceStore;
  found: Found;
  range: Range;
  theme: ThemeName;
  selection: Range | null;
}

const LANES = 8;
const AREA = 170;
const AREA_NARROW = 120;
/** Nobody waited. */
const AREA_EMPTY = 44;
/** A drag of fewer pixels is a click. */
const DRAG = 4;

/** One axis of time from left to right for everything. */
export function Tracks({ store, found, range, theme, selection }: TracksProps) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(frame);
  const [at, setAt] = useState(Number.NaN);
  const [drag, setDrag] = useState<{ begin: number; end: number } | null>(null);
  const { pressure, requests, stretches } = found;
  const area = pressure?.reasons.length === 0 ? AREA_EMPTY : width < 600 ? AREA_NARROW : AREA;
  const lanes = useMemo(() => slowest(store, requests, range), [store, requests, range.first, range.last]);
  const chosen = drag ?? (selection ? clockOf(store, selection) : null);
  const scene: TracksScene | null = pressure && {
    ...{ store, pressure, theme, width, area, lanes, at, chosen },
    marks: marks.value,
    worst: stretches[0] ?? null,
    focusRequest: focusRequest.value,
    tick: (ts) => clockText(store, pressure.origin, ts),
  };
  useLayoutEffect(() => {
    if (canvas.current && scene && width > 0) drawTracks(canvas.current, scene);
  });
  const { rows } = store;
  useLaneKeys(rows);
  const zoomed = windowOf(extra.value[ZOOM_KEY], rows);
  const isZoomed = zoomed.first > 0 || zoomed.last < rows;
  if (!scene || !pressure) {
    return (
      <div class="tracks" ref={frame}>
        <p class="quiet">{found.statistics ? "The trace tells no times: see the Timeline." : "Drawing the run …"}</p>
      </div>
    );
  }
  const placed = (event: MouseEvent, ground: HTMLElement) => {
    const box = ground.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const onPointerDown = (event: PointerEvent) => {
    const ground = event.currentTarget as HTMLElement;
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
      if (span) selected.value = { first: rowAtTime(store, span.begin), last: rowAtTime(store, span.end) };
    };
    ground.addEventListener("pointermove", move, { signal: done.signal });
    ground.addEventListener("pointerup", up, { signal: done.signal });
    ground.addEventListener("pointercancel", up, { signal: done.signal });
  };
  const onClick = (event: MouseEvent) => {
    const { x, y } = placed(event, event.currentTarget as HTMLElement);
    const lane = lanes[Math.floor((y - lanesTop(area)) / LANE)];
    if (y >= lanesTop(area) && lane) {
      focus(Math.max(store.requests.firstRow[lane.life.request], 0), lane.life.request);
    } else if (x >= LABEL && !drag) focus(rowAtTime(store, timeAt(scene, x)), -1);
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
        onPointerMove={(event) => {
          const { x } = placed(event, event.currentTarget);
          setAt(x >= LABEL ? timeAt(scene, x) : Number.NaN);
        }}
        onPointerLeave={() => setAt(Number.NaN)}
        onWheel={(event) => {
          if (!event.ctrlKey && !event.shiftKey) return;
          event.preventDefault();
          const anchor = rowAtTime(store, timeAt(scene, placed(event, event.currentTarget).x));
          if (event.ctrlKey) zoomLanes(rows, Math.exp(event.deltaY * 0.004), anchor);
          else panLanes(rows, Math.sign(event.deltaY || event.deltaX) * 0.15);
        }}
      >
        <canvas ref={canvas} style={{ height: `${heightOf(area, lanes.length)}px` }} />
      </div>
      <p class="tracks-foot">
        <output>
          {Number.isNaN(at) ? "Drag to select, click for a step or a request, W A S D to zoom." : under(scene, at)}
        </output>
        {isZoomed && (
          <button type="button" onClick={() => setExtra(ZOOM_KEY, "")}>
            whole run
          </button>
        )}
        {selection && (
          <button
            type="button"
            onClick={() => {
              selected.value = null;
            }}
          >
            clear the selection
          </button>
        )}
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

function clockOf(store: TraceStore, { first, last }: Range): { begin: number; end: number } {
  return { begin: store.steps.ts[first], end: endOfRow(store, last) };
}

/** The requests that took longest to their first token (else, that waited longest), of those in the picture. */
function slowest(store: TraceStore, requests: RequestFigures | null, range: Range): TracksScene["lanes"] {
  if (!requests) return [];
  const { firstRow, lastRow } = store.requests;
  const seen: number[] = [];
  for (let index = 0; index < requests.count; index++) {
    const request = requests.request[index];
    if (firstRow[request] <= range.last && Math.max(lastRow[request], firstRow[request]) >= range.first)
      seen.push(index);
  }
  const slow = (index: number) => Math.max(requests.ttft[index] || 0, requests.waited[index] || 0);
  const worst = seen.sort((a, b) => slow(b) - slow(a)).slice(0, LANES);
  return worst
    .filter((index) => slow(index) > 0)
    .map((index) => {
      const request = requests.request[index];
      const job = store.requests.job[request];
      const { job: name, turn } = jobAndTurn(store.requests.ids[request], job < 0 ? null : store.jobs.ids[job]);
      const label = `${turn ? `${name} ${turn}` : name} ${milliseconds(slow(index))}`;
      return { life: life(store, request), label, cut: isCutShort(store, request) };
    });
}

/** What is under the pointer. */
function under({ pressure, store }: TracksScene, ts: number): string {
  const slice = Math.min(Math.max(Math.floor((ts - pressure.from) / pressure.width), 0), pressure.slices - 1);
  const held = pressure.reasons
    .filter((reason) => reason.held[slice] >= 0.05)
    .map((reason) => `${middle(store.shown[reason.shown].name, 24)} ${fixed(reason.held[slice], 1)}`);
  return [
    clockText(store, pressure.origin, ts),
    held.length > 0 ? `held: ${held.join(", ")}` : "none held",
    `running ${fixed(pressure.running[slice], 1)}`,
    `KV ${percent(pressure.kv[slice])}`,
    `${count(pressure.tokensPerSecond[slice])} tokens/s`,
  ].join(" · ");
}

function aloud(store: TraceStore, { pressure, stretches }: Found): string {
  const reasons = pressure?.reasons.map(({ shown, lost }) => `${store.shown[shown].name} ${duration(lost)}`) ?? [];
  const [worst] = stretches;
  const when = worst
    ? `, worst from ${clockText(store, pressure?.origin ?? 0, worst.begin)} to ${clockText(store, pressure?.origin ?? 0, worst.end)}`
    : "";
  return `The run over time. Time lost: ${reasons.join(", ") || "none"}${when}`;
}
