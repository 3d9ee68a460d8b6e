/** The whole run in one strip: the dominant reason of each column of pixels, occupancy as a line, the view as a brush. */

import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { count } from "../format";
import { levels } from "../state/levels";
import { pan, showRange, zoom } from "../state/moves";
import { focusRow, matches, revision, selection, themeName, trace, view } from "../state/store";
import { drawMinimap, MINIMAP_HEIGHT } from "./minimapDraw";

/** The brush is never narrower, or it could not be seen; this close to its edge, a drag moves the edge. */
const LEAST_BRUSH = 6;
const EDGE = 5;

export function Minimap() {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useSignal(0);
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => {
      width.value = element.clientWidth;
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [width]);
  useSignalEffect(() => {
    revision.value;
    const store = trace.value;
    if (!store || !canvas.current || width.value === 0) return;
    drawMinimap(canvas.current, {
      store,
      width: width.value,
      theme: themeName.value,
      levels: levels.value,
      kept: matches.value.rows,
      selection: selection.value,
      focusRow: focusRow.value,
    });
  });
  return (
    <div class="minimap" ref={frame} style={{ height: `${MINIMAP_HEIGHT}px` }}>
      <canvas ref={canvas} />
      <Brush width={width.value} />
    </div>
  );
}

function Brush({ width }: { width: number }) {
  const store = trace.value;
  revision.value;
  if (!store || store.rows === 0) return null;
  const { first, last } = view.value;
  const scale = width / store.rows;
  const size = Math.max((last - first) * scale, LEAST_BRUSH);
  const left = Math.min(Math.max(((first + last) / 2) * scale - size / 2, 0), Math.max(width - size, 0));
  const { number } = store.steps;
  const to = Math.min(Math.ceil(last) - 1, store.rows - 1);
  const shown = `steps ${count(number[Math.max(Math.floor(first), 0)])} to ${count(number[Math.max(to, 0)])}`;
  return (
    <div
      class="brush-ground"
      onPointerDown={(event) => drag(event, event.currentTarget, store.rows, left, size)}
      onWheel={(event) => {
        event.preventDefault();
        const at = (event.clientX - event.currentTarget.getBoundingClientRect().left) / Math.max(scale, 1e-9);
        if (event.deltaX !== 0 && event.deltaY === 0) pan(Math.sign(event.deltaX) * 0.2);
        else zoom(Math.exp(event.deltaY * 0.004), at);
      }}
      role="presentation"
    >
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
        style={{ left: `${left}px`, width: `${size}px` }}
        onKeyDown={(event) => {
          const share = { ArrowLeft: -0.25, ArrowRight: 0.25, PageUp: -1, PageDown: 1 }[event.key];
          if (share === undefined) return;
          event.preventDefault();
          event.stopPropagation();
          pan(share);
        }}
      />
    </div>
  );
}

/** Inside the brush: move it. At its edge: move the edge. Elsewhere: a click centres it, a drag draws a new one. */
function drag(event: PointerEvent, ground: HTMLElement, rows: number, left: number, size: number): void {
  if (event.button !== 0) return;
  const box = ground.getBoundingClientRect();
  const rowAt = (x: number) => (Math.min(Math.max(x, 0), box.width) / box.width) * rows;
  const from = event.clientX - box.left;
  const { first, last } = view.peek();
  const wide = size > 4 * EDGE;
  const onLeft = wide && Math.abs(from - left) <= EDGE;
  const onRight = wide && Math.abs(from - left - size) <= EDGE;
  const inside = from >= left && from <= left + size;
  let moved = false;
  ground.setPointerCapture(event.pointerId);
  const done = new AbortController();
  const move = (next: PointerEvent) => {
    const x = next.clientX - box.left;
    moved ||= Math.abs(x - from) > 3;
    if (!moved) return;
    if (onLeft) showRange(Math.min(rowAt(x), last - 1), last);
    else if (onRight) showRange(first, Math.max(rowAt(x), first + 1));
    else if (inside) {
      const by = rowAt(x) - rowAt(from);
      showRange(first + by, last + by);
    } else showRange(rowAt(Math.min(from, x)), rowAt(Math.max(from, x)));
  };
  const up = () => {
    done.abort();
    if (moved || inside) return;
    const half = (last - first) / 2;
    showRange(rowAt(from) - half, rowAt(from) + half);
  };
  ground.addEventListener("pointermove", move, { signal: done.signal });
  ground.addEventListener("pointerup", up, { signal: done.signal });
  ground.addEventListener("pointercancel", () => done.abort(), { signal: done.signal });
}
