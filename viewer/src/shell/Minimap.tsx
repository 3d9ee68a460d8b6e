/** The whole run in one strip, by time or by step: the dominant reason of each column of pixels, occupancy as a line. */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Axis, makeAxis } from "../charts/axis";
import type { Range } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { count, percent } from "../format";
import { LABEL, RIGHT } from "../overview/tracksDraw";
import { LABEL_WIDTH } from "../requests/paint";
import { lanesShown, showLanes } from "../requests/window";
import { axisKind } from "../state/axis";
import { levels } from "../state/levels";
import { marks } from "../state/marks";
import { pan, showRange, zoom } from "../state/moves";
import { focusRequest, focusRow, matches, revision, selection, tab, themeName, trace, view } from "../state/store";
import { middle } from "../text";
import { times } from "../timeline/content";
import { columnOf, drawMinimap, MINIMAP_HEIGHT, RULER } from "./minimapDraw";

/** The frame is never narrower, or it could not be seen. */
const LEAST_FRAME = 6;
/** A drag of fewer pixels is a click. */
const DRAG_PIXELS = 3;
const TIP_WIDTH = 270;
/** A screen so narrow has no room beside it. */
const PHONE = 700;
/** About the picture. */
const MARGIN = 12;

export function Minimap() {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useSignal(0);
  const over = useSignal<number | null>(null);
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => {
      width.value = element.clientWidth;
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [width]);
  const axis = useComputed<Axis | null>(() => {
    revision.value;
    const store = trace.value;
    if (!store || store.rows === 0 || width.value === 0) return null;
    return makeAxis(store, { first: 0, last: store.rows }, width.value, axisKind.value);
  });
  useSignalEffect(() => {
    const store = trace.value;
    if (!store || !canvas.current || !axis.value) return;
    drawMinimap(canvas.current, {
      store,
      axis: axis.value,
      theme: themeName.value,
      levels: levels.value,
      kept: matches.value.rows,
      selection: selection.value,
      focusRow: focusRow.value,
      marks: marks.value,
    });
  });
  const store = trace.value;
  return (
    <div class="minimap" style={{ height: `${MINIMAP_HEIGHT}px` }}>
      <span class="strip-name">whole run</span>
      <div class="strip-run" ref={frame} style={beside()}>
        <canvas ref={canvas} />
        {store && axis.value && (
          <Ground store={store} axis={axis.value} onHover={(x) => (over.value = x)}>
            {/* Until the Timeline is opened nothing is in view. */}
            {view.value.last > view.value.first && <Frame store={store} axis={axis.value} />}
          </Ground>
        )}
        {store && axis.value && over.value !== null && <Tip store={store} axis={axis.value} x={over.value} />}
      </div>
    </div>
  );
}

let bar = Number.NaN;

/** How wide the scrollbar of the lanes is, whether they are there yet or not. */
function scrollbar(): number {
  if (Number.isNaN(bar)) {
    const probe = document.createElement("div");
    probe.style.cssText = "position: absolute; width: 99px; overflow-y: scroll";
    document.body.append(probe);
    bar = probe.offsetWidth - probe.clientWidth;
    probe.remove();
  }
  return bar;
}

/** Its moments stand above those of the picture or the lanes below it. */
function beside(): { left?: string; right?: string } {
  if (innerWidth <= PHONE) return {};
  const lanes = tab.value === "requests" && lanesShown();
  const panel = focusRow.value >= 0 || focusRequest.value >= 0 ? "var(--panel)" : "0px";
  return {
    left: `${lanes ? LABEL_WIDTH : LABEL + MARGIN}px`,
    right: `calc(${panel} + ${lanes ? scrollbar() : RIGHT + MARGIN}px)`,
  };
}

interface GroundProps {
  store: TraceStore;
  axis: Axis;
  onHover(x: number | null): void;
  children: preact.ComponentChildren;
}

/** Takes the pointer: a drag always draws the selection, a click looks at a place, the wheel zooms about it. */
function Ground({ store, axis, onHover, children }: GroundProps) {
  const placeOf = (event: MouseEvent, ground: HTMLElement) =>
    Math.min(Math.max(event.clientX - ground.getBoundingClientRect().left, 0), axis.width);
  return (
    <div
      class="brush-ground"
      onPointerDown={(event) => drag(event, event.currentTarget, store.rows, axis)}
      onPointerMove={(event) => onHover(placeOf(event, event.currentTarget))}
      onPointerLeave={() => onHover(null)}
      onWheel={(event) => {
        event.preventDefault();
        const at = axis.rowAt(placeOf(event, event.currentTarget));
        if (event.deltaX !== 0 && event.deltaY === 0) pan(Math.sign(event.deltaX) * 0.2);
        else zoom(Math.exp(event.deltaY * 0.004), at);
      }}
      role="presentation"
    >
      {children}
    </div>
  );
}

/** What is in view. */
function Frame({ store, axis }: { store: TraceStore; axis: Axis }) {
  revision.value;
  const { first, last } = view.value;
  const from = axis.rowX(Math.max(first, 0));
  const size = Math.max(axis.rowX(Math.min(last, store.rows)) - from, LEAST_FRAME);
  const left = Math.min(Math.max(from, 0), Math.max(axis.width - size, 0));
  const { number } = store.steps;
  const to = Math.min(Math.ceil(last) - 1, store.rows - 1);
  const shown = `steps ${count(number[Math.max(Math.floor(first), 0)])} to ${count(number[Math.max(to, 0)])}`;
  return (
    <div
      class="brush"
      role="slider"
      tabIndex={0}
      aria-label="Steps in view"
      aria-orientation="horizontal"
      aria-valuemin={number[0]}
      aria-valuemax={number[store.rows - 1]}
      aria-valuenow={number[Math.min(Math.max(Math.floor(first), 0), store.rows - 1)]}
      aria-valuetext={`${shown} of ${count(store.rows)}`}
      style={{ left: `${left}px`, width: `${size}px`, bottom: `${RULER}px` }}
      onKeyDown={(event) => {
        const share = { ArrowLeft: -0.25, ArrowRight: 0.25, PageUp: -1, PageDown: 1 }[event.key];
        if (share === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        pan(share);
      }}
    />
  );
}

/** Under the pointer: when, which step, what it is shown as, how full the cache was. */
function Tip({ store, axis, x }: { store: TraceStore; axis: Axis; x: number }) {
  const { shown, use } = columnOf({ store, axis, levels: levels.value }, Math.min(x, axis.width - 1));
  const row = Math.min(Math.max(Math.floor(axis.rowAt(x)), 0), store.rows - 1);
  const reason = store.shown[shown];
  const left = Math.min(Math.max(x - TIP_WIDTH / 2, 4), Math.max(axis.width - TIP_WIDTH - 4, 4));
  return (
    <div class="strip-tip" style={{ left: `${left}px`, width: `${TIP_WIDTH}px` }}>
      <span class="number">
        {times(store, row).elapsed} · step {count(store.steps.number[row])}
      </span>
      <strong>{middle(reason.name, 36)}</strong>
      {!Number.isNaN(use) && <span class="number">KV blocks in use: {percent(use)}</span>}
    </div>
  );
}

/** A drag draws the selection, wherever it begins; when it ends, Timeline and lanes show it. A click centres the view. */
function drag(event: PointerEvent, ground: HTMLElement, rows: number, axis: Axis): void {
  if (event.button !== 0) return;
  const { left } = ground.getBoundingClientRect();
  const rowAt = (x: number) => axis.rowAt(Math.min(Math.max(x, 0), axis.width));
  const from = event.clientX - left;
  let range: Range | null = null;
  ground.setPointerCapture(event.pointerId);
  const done = new AbortController();
  const move = (next: PointerEvent) => {
    const x = next.clientX - left;
    if (!range && Math.abs(x - from) <= DRAG_PIXELS) return;
    const [first, last] = [rowAt(Math.min(from, x)), rowAt(Math.max(from, x))];
    range = {
      first: Math.min(Math.floor(first), rows - 1),
      last: Math.min(Math.max(Math.ceil(last) - 1, Math.floor(first)), rows - 1),
    };
    selection.value = range;
  };
  const up = () => {
    done.abort();
    if (range) {
      showRange(range.first, range.last + 1);
      showLanes(rows, range);
      return;
    }
    const { first, last } = view.peek();
    const middleRow = rowAt(from);
    showRange(middleRow - (last - first) / 2, middleRow + (last - first) / 2);
  };
  ground.addEventListener("pointermove", move, { signal: done.signal });
  ground.addEventListener("pointerup", up, { signal: done.signal });
  ground.addEventListener("pointercancel", () => done.abort(), { signal: done.signal });
}
