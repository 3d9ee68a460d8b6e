import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { takeInk } from "../ink";
import type { ThemeName } from "../palette";
import { type Drawing, drawPlot } from "./plotDraw";
import { type Frame, frameOf, nearest, type PlotData, placeAt, xOf } from "./plotFrame";
import { useSize } from "./useSize";
import "./charts.css";

export interface PlotSpec extends Drawing {
  /** Read aloud for the plot as a whole. */
  label: string;
  height: number;
  /** Smallest top of the y axis. */
  yTop?: number;
  theme: ThemeName;
}

interface PlotProps {
  spec: PlotSpec;
  data: PlotData;
  /** Plots of one group show the same place under the cursor. */
  group: string;
  /** The point at an index, in words: read aloud as the cursor moves. */
  describe(index: number): string;
  /** Index of the point under the cursor, null when it leaves. */
  onCursor?(index: number | null): void;
  /** Two places: a span was dragged. */
  onBrush?(from: number, to: number): void;
  /** A place was clicked, or Enter was pressed on it. */
  onPick?(place: number): void;
}

const DRAG_AT_LEAST = 4;
/** The place that the cursor is at; there is one for all plots. */
const cursor = signal<{ group: string; place: number } | null>(null);

/** Areas and lines over rising places, as wide as the parent; read with the pointer or the keyboard. */
export function Plot(props: PlotProps) {
  const { spec, data, group, describe, onCursor } = props;
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { width } = useSize(host);
  const frame = useMemo(() => frameOf(data, width, spec.height, spec.yTop), [data, width, spec]);
  const found = cursor.value?.group === group ? nearest(data[0], cursor.value.place) : -1;
  const at = found < 0 ? null : found;
  const { drag, ...pointer } = usePointer(props, frame, at);
  useLayoutEffect(() => {
    const ink = canvas.current && width > 0 ? takeInk(canvas.current, width, spec.height, spec.theme) : null;
    if (ink) drawPlot(ink, frame, spec, data);
  }, [frame]);
  useEffect(() => onCursor?.(at), [at]);
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
      aria-valuenow={at ?? 0}
      aria-valuetext={at === null ? "the arrow keys move along the chart, Enter opens the step" : describe(at)}
      onKeyDown={(event) => keyboard(event, props, at ?? 0)}
      {...pointer}
    >
      <canvas ref={canvas} style={{ height: `${spec.height}px` }} />
      {at !== null && <i class="plot-cursor" style={across(xOf(frame, data[0][at]), 0, frame)} />}
      {drag && <i class="plot-span" style={across(Math.min(...drag), Math.abs(drag[1] - drag[0]), frame)} />}
    </div>
  );
}

function across(left: number, width: number, { top, bottom }: Frame): Record<string, string> {
  return { left: `${left}px`, width: `${width}px`, top: `${top}px`, height: `${bottom - top}px` };
}

/** Moving shows a point, dragging brushes a span, clicking picks. */
function usePointer({ data, group, onBrush, onPick }: PlotProps, frame: Frame, at: number | null) {
  const pressed = useRef<number | null>(null);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const xOfEvent = (event: PointerEvent) => {
    const x = event.clientX - (event.currentTarget as HTMLElement).getBoundingClientRect().left;
    return Math.min(Math.max(x, frame.left), frame.right);
  };
  const stop = () => {
    pressed.current = null;
    setDrag(null);
  };
  return {
    drag,
    onPointerDown: (event: PointerEvent) => {
      if (event.button !== 0) return;
      (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
      pressed.current = xOfEvent(event);
    },
    onPointerMove: (event: PointerEvent) => {
      const x = xOfEvent(event);
      cursor.value = { group, place: placeAt(frame, x) };
      const from = pressed.current;
      if (onBrush && from !== null && (drag || Math.abs(x - from) >= DRAG_AT_LEAST)) setDrag([from, x]);
    },
    onPointerUp: () => {
      if (drag) onBrush?.(placeAt(frame, Math.min(...drag)), placeAt(frame, Math.max(...drag)));
      else if (pressed.current !== null && at !== null) onPick?.(data[0][at]);
      stop();
    },
    onPointerCancel: stop,
    onPointerLeave: () => {
      cursor.value = null;
    },
  };
}

function keyboard(event: KeyboardEvent, { data: [places], group, onPick }: PlotProps, at: number): void {
  const last = places.length - 1;
  const page = Math.max(1, Math.round(last / 20));
  const moves: Record<string, number> = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: last,
  };
  if (event.key === "Enter") {
    if (last >= 0) onPick?.(places[at]);
    return;
  }
  const next = moves[event.key];
  if (next === undefined || last < 0) return;
  event.preventDefault();
  event.stopPropagation();
  cursor.value = { group, place: places[Math.min(Math.max(next, 0), last)] };
}
