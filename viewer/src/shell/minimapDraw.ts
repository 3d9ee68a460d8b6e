/** Draws the strip of the whole run. */

import type { Axis } from "../charts/axis";
import { MISSING, type Range, type Row } from "../data/model/columns";
import type { Level, LevelsOfDetail } from "../data/model/levels";
import { NO_REASON, type ReasonFamily } from "../data/model/reasons";
import type { TraceStore } from "../data/model/trace";
import { rowAtTime } from "../data/store";
import { familyFill, type Ink, rule, takeInk, tone, write } from "../ink";
import { FAMILIES, type ThemeName } from "../palette";
import type { Mark } from "../state/marks";

/** The picture, and the ruler below it. */
export const RULER = 14;
export const MINIMAP_HEIGHT = 31 + RULER;
/** From the top: occupancy line over the band of reasons, then the marks of what passes the filter. */
const MARKS = 4;
const TROUBLE = 5;
/** Runs narrower than this have no letter; calm ones have none. */
const LETTER_WIDTH = 14;
/** A pattern in less is noise. */
const LEAST_HATCHED = 6;

export interface MinimapScene {
  store: TraceStore;
  axis: Axis;
  theme: ThemeName;
  levels: LevelsOfDetail | null;
  kept: Int32Array | null;
  selection: Range | null;
  focusRow: Row;
  marks: readonly Mark[];
}

export function drawMinimap(canvas: HTMLCanvasElement, scene: MinimapScene): void {
  const ink = takeInk(canvas, scene.axis.width, MINIMAP_HEIGHT, scene.theme);
  if (!ink || scene.store.rows === 0) return;
  drawRuler(ink, scene.axis);
  ink.height = MINIMAP_HEIGHT - RULER;
  const letters = drawReasons(ink, scene);
  drawOccupancy(ink, scene);
  for (const { x, family } of letters) {
    const { letter, [ink.theme]: tone } = FAMILIES[family];
    write(ink, letter, x - ink.char / 2, ink.height - MARKS - 8, tone.ink, true);
  }
  if (scene.kept) drawKept(ink, scene.kept, scene.axis);
  const at = scene.axis.rowX;
  for (const { ts } of scene.marks)
    rule(ink, scene.axis.place(ts, rowAtTime(scene.store, ts)), 0, 1, ink.height, ink.surface.hot);
  if (scene.selection) {
    const from = at(scene.selection.first);
    const width = Math.max(at(scene.selection.last + 1) - from, 2);
    ink.context.globalAlpha = 0.18;
    rule(ink, from, 0, width, ink.height, ink.surface.accent);
    ink.context.globalAlpha = 1;
    rule(ink, from, ink.height - 3, width, 3, ink.surface.accent);
  }
  if (scene.focusRow >= 0) rule(ink, at(scene.focusRow + 0.5) - 1, 0, 2, ink.height, ink.surface.text);
}

/** One column of pixels: what most of its steps are, and the blocked reason among them, if there is any. */
interface Column {
  shown: number;
  blocked: number;
  /** Highest share of blocks in use, or NaN. */
  use: number;
}

export function columnOf({ store, levels, axis }: Pick<MinimapScene, "store" | "levels" | "axis">, x: number): Column {
  const from = axis.rowAt(x);
  const to = Math.max(axis.rowAt(x + 1), from + 1e-9);
  const level = levels?.by === axis.kind ? levels.pick(to - from) : null;
  return level ? ofLevel(store, level, from, to) : ofRows(store, axis, from, to);
}

function ofLevel(store: TraceStore, level: Level, from: number, to: number): Column {
  const size = 2 ** level.k;
  const first = Math.min(Math.floor(from / size), level.bins - 1);
  const last = Math.min(Math.max(Math.ceil(to / size) - 1, first), level.bins - 1);
  const total = known(store.steps.totalBlocks[Math.min(first * size, store.rows - 1)]);
  let used = Number.NaN;
  let blocked = NO_REASON;
  for (let bin = first; bin <= last; bin++) {
    if (!(used >= level.max.usedBlocks[bin])) used = level.max.usedBlocks[bin];
    if (blocked === NO_REASON) blocked = level.blocked[bin];
  }
  return { shown: level.dominant[first], blocked, use: used / total };
}

const SAMPLES = 12;

/** Few rows: what takes most of the column. */
function ofRows(store: TraceStore, axis: Axis, from: number, to: number): Column {
  const { shown, freeBlocks, totalBlocks } = store.steps;
  const first = Math.min(Math.floor(from), store.rows - 1);
  const last = Math.min(Math.max(Math.ceil(to) - 1, first), store.rows - 1);
  const stride = Math.max(1, Math.ceil((last - first + 1) / SAMPLES));
  const column: Column = { shown: shown[first], blocked: NO_REASON, use: Number.NaN };
  const weights = new Map<number, number>();
  let most = 0;
  for (let row = first; row <= last; row += stride) {
    const which = shown[row];
    const { blocked } = store.shown[which];
    if (blocked) column.blocked = which;
    const weight = (weights.get(which) ?? 0) + axis.rowX(row + 1) - axis.rowX(row);
    weights.set(which, weight);
    if (weight > most || (weight === most && blocked)) [column.shown, most] = [which, weight];
    const use = 1 - known(freeBlocks[row]) / known(totalBlocks[row]);
    if (!(column.use >= use)) column.use = use;
  }
  return column;
}

function known(value: number): number {
  return value === MISSING ? Number.NaN : value;
}

/** Answers where the letters belong: they are written last, over the line. */
function drawReasons(ink: Ink, scene: MinimapScene): { x: number; family: ReasonFamily }[] {
  const letters: { x: number; family: ReasonFamily }[] = [];
  const bottom = ink.height - MARKS;
  let from = 0;
  let before = -1;
  const flush = (to: number) => {
    if (before < 0 || to <= from) return;
    const { family } = scene.store.shown[before];
    ink.context.fillStyle = to - from < LEAST_HATCHED ? tone(family, ink.theme).fill : familyFill(ink, family);
    ink.context.fillRect(from, TROUBLE, to - from, bottom - TROUBLE);
    const { blocked } = scene.store.shown[before];
    if (blocked && to - from >= LETTER_WIDTH) letters.push({ x: (from + to) / 2, family });
  };
  for (let x = 0; x < ink.width; x++) {
    const column = columnOf(scene, x);
    if (column.shown !== before) {
      flush(x);
      from = x;
      before = column.shown;
    }
    // Rare trouble, which is nowhere dominant, has a mark of its own above the band.
    if (column.blocked !== NO_REASON) rule(ink, x, 0, 1, TROUBLE - 1, ink.surface.blocked.fill);
  }
  flush(ink.width);
  return letters;
}

function drawOccupancy(ink: Ink, scene: MinimapScene): void {
  const { context } = ink;
  const [top, bottom] = [TROUBLE + 1, ink.height - MARKS - 1];
  const trace = () => {
    context.beginPath();
    let drawing = false;
    for (let x = 0; x < ink.width; x++) {
      const { use } = columnOf(scene, x);
      if (Number.isNaN(use)) {
        drawing = false;
        continue;
      }
      const y = bottom - Math.min(Math.max(use, 0), 1) * (bottom - top);
      if (drawing) context.lineTo(x + 0.5, y);
      else context.moveTo(x + 0.5, y);
      drawing = true;
    }
    context.stroke();
  };
  // A halo in the colour of the page keeps the line legible on every fill.
  context.lineJoin = "round";
  context.strokeStyle = ink.surface.page;
  context.lineWidth = 3.5;
  trace();
  context.strokeStyle = ink.surface.occupancy;
  context.lineWidth = 1.4;
  trace();
}

function drawKept(ink: Ink, kept: Int32Array, axis: Axis): void {
  let last = -1;
  for (let at = 0; at < kept.length; at++) {
    const x = Math.floor(axis.rowX(kept[at]));
    const width = Math.max(1, axis.rowX(kept[at] + 1) - x);
    if (x !== last) rule(ink, x, ink.height - MARKS, width, MARKS, ink.surface.accent);
    last = x;
  }
}

/** Round moments or steps along the bottom. */
function drawRuler(ink: Ink, axis: Axis): void {
  const top = MINIMAP_HEIGHT - RULER;
  rule(ink, 0, top, ink.width, 1);
  for (const { x, text } of axis.ticks) {
    rule(ink, Math.round(x), top, 1, 4);
    const words = axis.kind === "time" ? text : `step ${text}`;
    const left = Math.min(Math.max(x + 3, 3), ink.width - words.length * ink.char - 3);
    write(ink, words, left, top + RULER / 2 + 1, ink.surface.quiet);
  }
}
