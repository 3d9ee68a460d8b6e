import { useEffect, useRef } from "preact/hooks";
import type { Mark } from "../state/marks";
import { drawPlot, type PlotData, type PlotSpec, scaleOf } from "./plotDraw";
import { useSize } from "./useSize";
import "./charts.css";

export type { PlotData, PlotSpec } from "./plotDraw";

interface PlotProps {
  spec: PlotSpec;
  data: PlotData;
  /** Marked moments, at places of the x axis. */
  marks?: readonly Mark[];
  /** Names the chart family whose cursors move together. */
  sync: string;
  /** The point at an index, in words: read aloud as the cursor moves. */
  describe(index: number): string;
  /** Index of the point under the cursor, null when it leaves. */
  onCursor(index: number | null): void;
  /** Two x values: a span was dragged. */
  onBrush?(from: number, to: number): void;
  /** An x value was clicked, or Enter was pressed on it. */
  onPick?(x: number): void;
}

/** Pixels: less is a click. */
const DRAG_AT_LEAST = 4;
const NONE: readonly Mark[] = [];

/** Charts of each family: where the cursor of one goes, those of the others go. */
const families = new Map<string, Set<(x: number | null) => void>>();

/** A chart along one axis, as wide as its parent. */
export function Plot(props: PlotProps) {
  const { spec, data, sync, marks = NONE } = props;
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const cursor = useRef<HTMLDivElement>(null);
  const brush = useRef<HTMLDivElement>(null);
  const { width } = useSize(host);
  /** What handlers find that were made earlier. */
  const now = useRef({ ...props, scale: scaleOf(data[0], width) });
  now.current = { ...props, scale: scaleOf(data[0], width) };
  const at = useRef<number | null>(null);
  const from = useRef<number | null>(null);
  useEffect(() => {
    if (canvas.current && width > 0) drawPlot(canvas.current, spec, data, marks, width);
  }, [spec, data, marks, width]);
  useEffect(() => {
    const follow = (x: number | null) => {
      const { data, describe, onCursor, scale } = now.current;
      const index = x === null || data[0].length === 0 ? null : nearest(data[0], x);
      at.current = index;
      lay(cursor.current, index === null ? null : scale.to(data[0][index]));
      if (index !== null) {
        host.current?.setAttribute("aria-valuenow", String(index));
        host.current?.setAttribute("aria-valuetext", describe(index));
      }
      onCursor(index);
    };
    const family = families.get(sync) ?? new Set();
    families.set(sync, family.add(follow));
    return () => {
      family.delete(follow);
      if (family.size === 0) families.delete(sync);
    };
  }, [sync]);
  const move = (x: number | null) => {
    for (const follow of families.get(sync) ?? []) follow(x);
  };
  const pick = (index: number | null) => {
    if (index !== null) props.onPick?.(data[0][index]);
  };
  const placeOf = (event: PointerEvent) => event.clientX - (host.current?.getBoundingClientRect().left ?? 0);
  return (
    <div
      ref={host}
      class="plot"
      style={{ height: `${spec.height}px` }}
      role="slider"
      tabIndex={0}
      aria-label={spec.label}
      aria-valuemin={0}
      aria-valuemax={Math.max(data[0].length - 1, 0)}
      aria-valuenow={0}
      aria-valuetext="the arrow keys move along the chart, Enter opens the step"
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        from.current = placeOf(event);
        host.current?.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const place = placeOf(event);
        move(now.current.scale.from(place));
        if (from.current !== null && props.onBrush)
          lay(brush.current, Math.min(from.current, place), Math.abs(place - from.current));
      }}
      onPointerUp={(event) => {
        const [start, end, { scale }] = [from.current, placeOf(event), now.current];
        from.current = null;
        lay(brush.current, null);
        if (start === null) return;
        if (Math.abs(end - start) < DRAG_AT_LEAST) pick(data[0].length > 0 ? nearest(data[0], scale.from(end)) : null);
        else props.onBrush?.(scale.from(Math.min(start, end)), scale.from(Math.max(start, end)));
      }}
      onPointerCancel={() => {
        from.current = null;
        lay(brush.current, null);
      }}
      onPointerLeave={() => move(null)}
      onKeyDown={(event) => {
        if (event.key === "Enter") return pick(at.current ?? 0);
        const next = keyed(event.key, at.current ?? 0, data[0].length - 1);
        if (next === null) return;
        event.preventDefault();
        event.stopPropagation();
        move(data[0][next]);
      }}
    >
      <canvas ref={canvas} style={{ width: "100%", height: "100%" }} />
      <div ref={cursor} class="plot-cursor" hidden />
      <div ref={brush} class="plot-brush" hidden />
    </div>
  );
}

/** Null: out of sight. */
function lay(element: HTMLElement | null, left: number | null, width?: number): void {
  if (!element) return;
  element.hidden = left === null;
  element.style.left = `${left}px`;
  if (width !== undefined) element.style.width = `${width}px`;
}

/** Index of the place that is closest; places rise. */
export function nearest(places: readonly number[], x: number): number {
  let low = 0;
  let high = places.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - places[low - 1] < places[low] - x ? low - 1 : low;
}

/** Where a key leads from an index; null: it is none of the chart's, or there is nothing. */
export function keyed(key: string, at: number, last: number): number | null {
  const page = Math.max(1, Math.round(last / 20));
  const moves: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: last,
  };
  const next = moves[key];
  return next === undefined || last < 0 ? null : Math.min(Math.max(next, 0), last);
}
