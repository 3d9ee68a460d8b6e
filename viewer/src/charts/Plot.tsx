import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { fitText } from "../ink";
import { SURFACES, type ThemeName } from "../palette";
import type { Mark } from "../state/marks";
import "./charts.css";

/** What a chart draws, before colours: uPlot's own options are made from it anew for each theme. */
export interface PlotSpec {
  /** Read aloud for the chart as a whole. */
  label: string;
  height: number;
  series: uPlot.Series[];
  bands?: uPlot.Band[];
  /** Text at a place of the x axis. */
  xText(value: number): string;
  /** Places between whole numbers are marked as well: seconds. */
  fractions?: boolean;
  yText(value: number): string;
  /** Smallest top of the y axis. */
  yTop?: number;
  theme: ThemeName;
}

interface PlotProps {
  spec: PlotSpec;
  data: uPlot.AlignedData;
  /** Moments that somebody marked, at places of the x axis. */
  marks?: readonly Mark[];
  /** Names the chart family whose cursors move together. */
  sync?: string;
  /** The point at an index, in words: read aloud as the cursor moves. */
  describe(index: number): string;
  /** Index of the point under the cursor, null when it leaves. */
  onCursor?(index: number | null): void;
  /** Two x values: a span was dragged. */
  onBrush?(from: number, to: number): void;
  /** An x value was clicked, or Enter was pressed on it. */
  onPick?(x: number): void;
}

type Events = Omit<PlotProps, "spec" | "data">;

const DRAG_AT_LEAST = 4;
const FACE = "system-ui, sans-serif";

/** uPlot inside Preact: made anew when `spec` changes, refilled when `data` does, as wide as its parent. */
export function Plot({ spec, data, ...events }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(events);
  latest.current = events;
  useEffect(() => {
    const parent = host.current;
    if (!parent) return;
    const made = new uPlot(options(spec, parent.clientWidth, latest), data, parent);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: spec.height }));
    watch.observe(parent);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [spec, events.sync]);
  useEffect(() => plot.current?.setData(data), [data]);
  useEffect(() => plot.current?.redraw(false), [events.marks]);
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
      onKeyDown={(event) => plot.current && keyboard(plot.current, event, latest.current)}
    />
  );
}

function options(spec: PlotSpec, width: number, latest: { current: Events }): uPlot.Options {
  const surface = SURFACES[spec.theme];
  const axis = { stroke: surface.quiet, font: `11px ${FACE}`, ticks: { stroke: surface.rule, width: 1 } };
  return {
    width,
    height: spec.height,
    legend: { show: false },
    cursor: {
      ...(latest.current.sync ? { sync: { key: latest.current.sync, setSeries: false } } : {}),
      drag: { x: true, y: false, setScale: false, dist: DRAG_AT_LEAST },
      points: { show: false },
      y: false,
    },
    scales: {
      x: { time: false, range: (_, low, high) => (low === high ? [low - 0.5, high + 0.5] : [low, high]) },
      y: { range: (_, __, high) => [0, Math.max(high || 0, spec.yTop ?? 1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 80,
        size: 34,
        values: (_, splits) => splits.map((x) => (spec.fractions ? spec.xText(x) : whole(x, spec.xText))),
      },
      {
        ...axis,
        grid: { stroke: surface.rule, width: 1 },
        size: 62,
        space: 24,
        values: (_, splits) => splits.map(spec.yText),
      },
    ],
    series: spec.series,
    ...(spec.bands ? { bands: spec.bands } : {}),
    hooks: {
      draw: [(self) => moments(self, latest.current.marks ?? [], surface.hot)],
      setCursor: [(self) => moved(self, latest.current)],
      setSelect: [(self) => brushed(self, latest.current)],
      ready: [(self) => self.over.addEventListener("click", () => clicked(self, latest.current))],
    },
  };
}

/** The x axis counts rows: nothing stands between two of them. */
function whole(x: number, text: (value: number) => string): string {
  return Number.isInteger(x) ? text(x) : "";
}

/** A line where each begins, a shade until it ends, its words beside it. */
function moments(self: uPlot, marks: readonly Mark[], colour: string): void {
  const { ctx, bbox } = self;
  const pixels = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = colour;
  ctx.font = `${11 * pixels}px ${FACE}`;
  ctx.textBaseline = "top";
  for (const { ts, end, text } of marks) {
    const [from, to] = [ts, end].map((at) => Math.round(self.valToPos(at, "x", true)));
    ctx.fillRect(from, bbox.top, pixels, bbox.height);
    ctx.globalAlpha = 0.12;
    ctx.fillRect(from, bbox.top, to - from, bbox.height);
    ctx.globalAlpha = 1;
    ctx.fillText(fitText(text, 160, 6), from + 4 * pixels, bbox.top + 2 * pixels);
  }
  ctx.restore();
}

function moved(self: uPlot, events: Events): void {
  const index = self.cursor.idx ?? null;
  const host = self.root.parentElement;
  if (index !== null && host) {
    host.setAttribute("aria-valuenow", String(index));
    host.setAttribute("aria-valuetext", events.describe(index));
  }
  events.onCursor?.(index);
}

function brushed(self: uPlot, events: Events): void {
  const { left, width } = self.select;
  if (width < DRAG_AT_LEAST) return;
  const from = self.posToVal(left, "x");
  const to = self.posToVal(left + width, "x");
  self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  events.onBrush?.(from, to);
}

function clicked(self: uPlot, events: Events): void {
  const x = self.cursor.idx === null || self.cursor.idx === undefined ? undefined : self.data[0][self.cursor.idx];
  if (x !== undefined && self.select.width < DRAG_AT_LEAST) events.onPick?.(x);
}

function keyboard(self: uPlot, event: KeyboardEvent, events: Events): void {
  const last = self.data[0].length - 1;
  const at = self.cursor.idx ?? 0;
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
    const x = self.data[0][at];
    if (x !== undefined) events.onPick?.(x);
    return;
  }
  const next = moves[event.key];
  if (next === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const x = self.data[0][Math.min(Math.max(next, 0), last)];
  if (x !== undefined) self.setCursor({ left: self.valToPos(x, "x"), top: 10 });
}
