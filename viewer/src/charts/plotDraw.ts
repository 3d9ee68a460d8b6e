/** Draws a plot: axes, areas, lines. */

import { type Ink, rule, write, writeRight } from "../ink";
import { marks } from "./marks";
import { type Frame, type PlotData, type Values, xOf, yOf } from "./plotFrame";

/** The room between two columns of the data, or between one and zero. Columns count from 1: before them are the places. */
export interface Area {
  column: number;
  above?: number;
  fill: string | CanvasPattern;
}

export interface Line {
  column: number;
  stroke: string;
  width: number;
  dash?: number[];
  /** Goes on where a value is missing. */
  spansGaps?: boolean;
}

export interface Drawing {
  areas: readonly Area[];
  lines: readonly Line[];
  /** Text at a place of the x axis, and at a value. */
  xText(place: number): string;
  yText(value: number): string;
}

const SPACE = { x: 80, y: 32 };
const TICK = 4;

export function drawPlot(ink: Ink, frame: Frame, drawing: Drawing, data: PlotData): void {
  drawAxes(ink, frame, drawing);
  const column = (index: number) => data[index] as Values;
  for (const { column: upper, above, fill } of drawing.areas) {
    ink.context.fillStyle = fill;
    for (const points of runs(data[0], column(upper), false))
      drawArea(ink, frame, points, above ? column(above) : null);
  }
  for (const { column: index, stroke, width, dash, spansGaps } of drawing.lines) {
    Object.assign(ink.context, { strokeStyle: stroke, lineWidth: width });
    ink.context.setLineDash(dash ?? []);
    for (const points of runs(data[0], column(index), spansGaps === true)) drawLine(ink, frame, points);
  }
  ink.context.setLineDash([]);
}

/** Both axes count whole things: nothing stands between two of them. */
function drawAxes(ink: Ink, frame: Frame, { xText, yText }: Drawing): void {
  const { left, right, top, bottom, from, to, highest } = frame;
  const { quiet } = ink.surface;
  for (const value of marks(0, highest, Math.max((bottom - top) / SPACE.y, 1)).filter(Number.isInteger)) {
    const y = Math.round(yOf(frame, value));
    rule(ink, left - TICK, y, right - left + TICK, 1);
    writeRight(ink, yText(value), left - 2 * TICK, y, quiet);
  }
  for (const place of marks(from, to, Math.max((right - left) / SPACE.x, 1)).filter(Number.isInteger)) {
    const x = Math.round(xOf(frame, place));
    const text = xText(place);
    rule(ink, x, bottom, 1, TICK);
    const width = text.length * ink.char;
    write(ink, text, Math.min(x - width / 2, ink.width - width), bottom + 14, quiet);
  }
}

interface Point {
  index: number;
  place: number;
  value: number;
}

/** The known points, one list for each stretch without a gap. */
function runs(places: readonly number[], values: Values, spansGaps: boolean): Point[][] {
  const found: Point[][] = [];
  let open = false;
  values.forEach((value, index) => {
    if (value === null) open &&= spansGaps;
    else {
      if (!open) found.push([]);
      open = true;
      found[found.length - 1].push({ index, place: places[index], value });
    }
  });
  return found;
}

function drawArea({ context }: Ink, frame: Frame, points: Point[], floor: Values | null): void {
  context.beginPath();
  for (const { place, value } of points) context.lineTo(xOf(frame, place), yOf(frame, value));
  for (const { index, place } of [...points].reverse()) {
    context.lineTo(xOf(frame, place), yOf(frame, floor?.[index] ?? 0));
  }
  context.fill();
}

function drawLine({ context }: Ink, frame: Frame, points: Point[]): void {
  context.beginPath();
  for (const { place, value } of points) context.lineTo(xOf(frame, place), yOf(frame, value));
  context.stroke();
}
