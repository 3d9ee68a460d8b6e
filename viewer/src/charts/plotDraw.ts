/** Draws a chart along one axis: areas, lines, both axes, and marked moments. */

import { fitText, type Ink, rule, takeInk, write, writeRight } from "../ink";
import type { ThemeName } from "../palette";
import type { Mark } from "../state/marks";
import { marks as marksOf, timeMarks } from "./marks";

/** One row of values over the places of a chart. */
export interface Curve {
  stroke?: string;
  dash?: number[];
  /** Filled down to the curve before it, the first one down to zero. Gaps stay gaps; a line skips them. */
  fill?(): string | CanvasPattern;
}

export interface PlotSpec {
  /** Read aloud for the chart as a whole. */
  label: string;
  height: number;
  curves: readonly Curve[];
  /** Text at a place of the x axis. */
  xText(value: number): string;
  /** The x axis counts seconds, and a clock shows so many at its 0; else it counts whole things, such as rows. */
  base?: number;
  yText(value: number): string;
  /** Smallest top of the y axis. */
  yTop?: number;
  theme: ThemeName;
}

/** Places from left to right, and what each curve is there. */
export type PlotData = readonly [readonly number[], ...(readonly (number | null)[])[]];

const LEFT = 62;
const RIGHT = 10;
const TOP = 6;
const BOTTOM = 20;
/** Pixels between two marks, at least. */
const SPACE = 80;
const LINE = 26;

export interface Scale {
  to(x: number): number;
  from(pixel: number): number;
}

/** The x axis in pixels; a single place stands in the middle. */
export function scaleOf(x: readonly number[], width: number): Scale {
  const [low, high] = [x[0] ?? 0, x[x.length - 1] ?? 0];
  const [from, size] = low === high ? [low - 0.5, 1] : [low, high - low];
  const long = Math.max(width - LEFT - RIGHT, 1);
  return {
    to: (place) => LEFT + ((place - from) / size) * long,
    from: (pixel) => from + (Math.min(Math.max(pixel - LEFT, 0), long) / long) * size,
  };
}

export function drawPlot(
  canvas: HTMLCanvasElement,
  spec: PlotSpec,
  [x, ...values]: PlotData,
  marks: readonly Mark[],
  width: number,
): void {
  const ink = takeInk(canvas, width, spec.height, spec.theme);
  if (!ink) return;
  const { to, from } = scaleOf(x, width);
  const bottom = spec.height - BOTTOM;
  let most = spec.yTop ?? 1;
  for (const curve of values) for (const value of curve) if (value !== null && value > most) most = value;
  // A mark at the top as well.
  const by = marksOf(0, most, (spec.height - BOTTOM - TOP) / LINE)[1] ?? most;
  const high = Math.ceil(most / by - 1e-9) * by;
  const y = (value: number) => bottom - (value / high) * (bottom - TOP);
  const [right, { context }] = [width - RIGHT, ink];
  for (let tick = 0; tick * by <= high * (1 + 1e-9); tick++) {
    const value = tick * by;
    rule(ink, LEFT, Math.round(y(value)), right - LEFT, 1);
    writeRight(ink, spec.yText(value), LEFT - 6, Math.max(y(value), TOP), ink.surface.quiet);
  }
  const [begin, end] = [from(LEFT), from(right)];
  const wanted = Math.max((right - LEFT) / SPACE, 1);
  const { base } = spec;
  for (const place of base === undefined ? marksOf(begin, end, wanted) : timeMarks(begin, end, wanted, 0, base)) {
    if (base === undefined && !Number.isInteger(place)) continue;
    const text = spec.xText(place);
    rule(ink, Math.round(to(place)), bottom, 1, 4, ink.surface.quiet);
    const room = text.length * ink.char;
    write(ink, text, Math.min(to(place) - room / 2, width - room), bottom + 12, ink.surface.quiet);
  }
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, right - LEFT, bottom + 1);
  context.clip();
  context.lineWidth = 1.5;
  spec.curves.forEach((curve, at) => {
    if (curve.fill) area(ink, x.map(to), values[at] ?? [], at > 0 ? (values[at - 1] ?? []) : null, y, curve.fill());
    if (curve.stroke) line(ink, x.map(to), values[at] ?? [], y, curve);
  });
  context.setLineDash([]);
  for (const mark of marks) moment(ink, to(mark.ts), to(mark.end), mark.text, bottom);
  context.restore();
}

type Values = readonly (number | null)[];

/** Each unbroken piece, there along the upper edge and back along the lower one. */
function area(
  { context }: Ink,
  at: readonly number[],
  upper: Values,
  lower: Values | null,
  y: (value: number) => number,
  fill: string | CanvasPattern,
): void {
  context.fillStyle = fill;
  for (let start = 0; start < at.length; start++) {
    if (upper[start] === null) continue;
    let end = start;
    while (end + 1 < at.length && upper[end + 1] !== null) end += 1;
    context.beginPath();
    for (let i = start; i <= end; i++) context.lineTo(at[i], y(upper[i] ?? 0));
    for (let i = end; i >= start; i--) context.lineTo(at[i], y(lower?.[i] ?? 0));
    context.fill();
    start = end;
  }
}

function line(
  { context }: Ink,
  at: readonly number[],
  values: Values,
  y: (value: number) => number,
  curve: Curve,
): void {
  context.strokeStyle = curve.stroke ?? "";
  context.setLineDash(curve.dash ?? []);
  context.beginPath();
  values.forEach((value, i) => {
    if (value !== null) context.lineTo(at[i], y(value));
  });
  context.stroke();
}

/** A line where it begins, a shade until it ends, its words beside it. */
function moment(ink: Ink, from: number, to: number, text: string, bottom: number): void {
  const colour = ink.surface.hot;
  rule(ink, Math.round(from), TOP, 1, bottom - TOP, colour);
  ink.context.globalAlpha = 0.12;
  rule(ink, from, TOP, to - from, bottom - TOP, colour);
  ink.context.globalAlpha = 1;
  write(ink, fitText(text, 160, ink.char), from + 4, TOP + 7, colour);
}
