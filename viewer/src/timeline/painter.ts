/** Paints the timeline's canvas, and knows afterwards what lies where. */

import type { Range, Row } from "../data/model/columns";
import type { Badge, Pill } from "../data/model/moment";
import type { TraceStore } from "../data/model/trace";
import { type Ink, rule, takeInk, writeRight } from "../ink";
import type { ThemeName } from "../palette";
import type { Axis } from "./axis";
import { Contents } from "./content";
import { type Column, type Geometry, TEXT_HEIGHT, visible, yOf } from "./geometry";
import { drawTextRow, type Spots } from "./textRows";

/** Milliseconds of one frame that may go into rows that have never been in view. */
const BUDGET_MS = 7;

export interface Scene {
  store: TraceStore;
  axis: Axis;
  geometry: Geometry;
  columns: readonly Column[];
  width: number;
  theme: ThemeName;
  selection: Range | null;
  /** Place of the focused row, -1 if it has none. */
  focusPlace: number;
  /** Rows with a note. */
  noted: readonly Row[];
  meant: ((request: number) => boolean) | null;
}

export class Painter {
  readonly contents = new Contents();
  private spots: ({ place: number } & Spots)[] = [];

  /** True if rows were left out for want of time: paint again in the next frame. */
  paint(canvas: HTMLCanvasElement, scene: Scene): boolean {
    const ink = takeInk(canvas, scene.width, scene.geometry.height, scene.theme);
    if (!ink) return false;
    this.spots = [];
    const { geometry, columns } = scene;
    if (geometry.rowHeight < TEXT_HEIGHT) return false;
    const late = this.paintRows(ink, scene);
    paintMarks(ink, scene);
    for (const column of columns.slice(1)) rule(ink, column.x - 1, 0, 1, geometry.height);
    return late;
  }

  /** The pill under a point of the canvas. */
  pillAt(x: number, y: number): { place: number; pill: Pill } | null {
    for (const { place, pills } of this.spots) {
      for (const spot of pills) {
        if (x >= spot.x && x < spot.x + spot.width && y >= spot.y && y < spot.y + 17) return { place, pill: spot.pill };
      }
    }
    return null;
  }

  /** The badge under a point of the canvas. */
  badgeAt(x: number, y: number): Badge | null {
    for (const { badges } of this.spots) {
      const spot = badges.find((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + 17);
      if (spot) return spot.badge;
    }
    return null;
  }

  private paintRows(ink: Ink, scene: Scene): boolean {
    const { store, axis, geometry, columns } = scene;
    const { first, last } = visible(geometry);
    const began = performance.now();
    let late = false;
    for (let place = first; place <= last; place++) {
      const y = yOf(geometry, place);
      if (y > geometry.height) break;
      const row = axis.rowAt(place);
      if (row % 2 === 1) rule(ink, 0, y, ink.width, geometry.rowHeight, ink.surface.stripe);
      rule(ink, 0, Math.round(y + geometry.rowHeight) - 1, ink.width, 1);
      if (geometry.open?.place === place) continue;
      let content = this.contents.peek(store, row);
      if (!content && performance.now() - began < BUDGET_MS) content = this.contents.get(store, row);
      if (content) {
        this.spots.push({ place, ...drawTextRow(ink, columns, content, y, geometry.rowHeight, scene.meant) });
      } else {
        late = true;
        const step = columns[0];
        writeRight(ink, String(store.steps.number[row]), step.x + step.width - 8, y + 10, ink.surface.quiet);
      }
    }
    return late;
  }
}

const FLAG = 12;

/** A little flag at the left: there is a note on this step. */
function flag(ink: Ink, x: number, y: number): void {
  rule(ink, x, y, 1.5, FLAG, ink.surface.accent);
  rule(ink, x, y, 8, FLAG / 2, ink.surface.accent);
}

/** Notes, the selected range, and the focused row. */
function paintMarks(ink: Ink, { axis, geometry, selection, focusPlace, noted, width }: Scene): void {
  const { context, surface } = ink;
  for (const row of noted) {
    const y = yOf(geometry, axis.toPlace(row));
    if (y > -FLAG && y < geometry.height) flag(ink, 6, y + 3);
  }
  if (selection) {
    const from = yOf(geometry, axis.toPlace(selection.first));
    const to = Math.max(yOf(geometry, axis.toPlace(selection.last + 1)), from + 2);
    context.globalAlpha = 0.1;
    rule(ink, 0, from, width, to - from, surface.accent);
    context.globalAlpha = 1;
    rule(ink, 0, from, 4, to - from, surface.accent);
    rule(ink, 0, from, width, 1, surface.accent);
    rule(ink, 0, to - 1, width, 1, surface.accent);
  }
  if (focusPlace >= 0 && !geometry.open) {
    const y = yOf(geometry, focusPlace);
    const height = Math.max(geometry.rowHeight, 2);
    context.strokeStyle = surface.text;
    context.lineWidth = 1.5;
    context.strokeRect(0.75, y - 0.5, width - 1.5, height + 1);
  }
}
