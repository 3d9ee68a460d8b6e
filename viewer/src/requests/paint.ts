/** The lanes on a canvas: only what is in sight, turn by turn. */

import type { Axis } from "../charts/axis";
import { hatched } from "../charts/patterns";
import { PHASES, PINNED } from "../charts/tones";
import { isNarrow, touches } from "../charts/touches";
import type { Range, RequestIndex } from "../data/model/columns";
import type { JobLane, PhaseKind, RequestLife } from "../data/model/lives";
import { SURFACES, type ThemeName } from "../palette";
import type { Mark } from "../state/marks";
import { type Tracks, tracks } from "./tracks";

export const LANE_HEIGHT = touches() ? 32 : 26;
export const HEAD_HEIGHT = 24;
export const LABEL_WIDTH = isNarrow() ? 190 : 270;
const PADDING = 4;
const SIGN_AT_LEAST = 16;
const TEXT_AT_LEAST = 34;

/** One lane, ready to draw. */
export interface DrawnLane {
  lane: JobLane;
  tracks: Tracks;
  /** Id, made short enough. */
  label: string;
  /** Beside it, the first that fits: `ja · 10 turns · 3.1 s`, ..., `3.1 s` (that it waited). */
  notes: string[];
}

export interface Picture {
  axis: Axis;
  theme: ThemeName;
  /** The lanes in sight, and the position of the first one among all shown (not whole while scrolling). */
  lanes: DrawnLane[];
  top: number;
  marks: readonly Mark[];
  /** Over the labels. */
  head: string;
  focusRow: number;
  focusRequest: RequestIndex;
  selection: Range | null;
  /** Requests that the filter means; the others are drawn pale. */
  meant: Uint8Array | null;
  /** The row at a moment. */
  rowAt(ts: number): number;
  turnText(request: RequestIndex): string;
  /** It was aborted, or failed. */
  isCut(request: RequestIndex): boolean;
}

export function drawn(lane: JobLane, label: string, notes: string[]): DrawnLane {
  return { lane, tracks: tracks(lane.turns), label, notes };
}

/** Draw everything; `width` and `height` in CSS pixels, the pen scaled for the screen. */
export function paint(pen: CanvasRenderingContext2D, picture: Picture, width: number, height: number): void {
  const surface = SURFACES[picture.theme];
  pen.fillStyle = surface.page;
  pen.fillRect(0, 0, width, height);
  pen.textBaseline = "middle";
  const fills = makeFills(picture.theme);
  picture.lanes.forEach((one, index) => {
    const y = laneY(picture, index);
    pen.strokeStyle = surface.rule;
    pen.lineWidth = 1;
    line(pen, 0, y + LANE_HEIGHT - 0.5, width, y + LANE_HEIGHT - 0.5);
    label(pen, one, y, surface.text, surface.quiet);
    clipped(pen, LABEL_WIDTH, y, width - LABEL_WIDTH, LANE_HEIGHT, () => paintLane(pen, picture, one, y, fills));
  });
  clipped(pen, LABEL_WIDTH, 0, width - LABEL_WIDTH, height, () => overlays(pen, picture, height));
  head(pen, picture, width);
}

export function laneY(picture: { top: number }, index: number): number {
  return HEAD_HEIGHT + (Math.floor(picture.top) + index - picture.top) * LANE_HEIGHT;
}

/** Top and height of a turn's bar within its lane. */
export function barOf(one: DrawnLane, turn: number): { top: number; height: number } {
  const room = LANE_HEIGHT - 2 * PADDING;
  const height = room / one.tracks.count;
  return { top: PADDING + one.tracks.of[turn] * height, height: Math.max(height - (one.tracks.count > 1 ? 1 : 0), 2) };
}

type Fills = Record<PhaseKind | "pinned", string | CanvasPattern>;

function makeFills(theme: ThemeName): Fills {
  const fill = (look: typeof PINNED) => hatched(look[theme], look.hatch);
  return {
    queued: fill(PHASES.queued),
    prefill: fill(PHASES.prefill),
    decode: fill(PHASES.decode),
    preempted: fill(PHASES.preempted),
    pinned: fill(PINNED),
  };
}

function paintLane(pen: CanvasRenderingContext2D, picture: Picture, one: DrawnLane, y: number, fills: Fills): void {
  const { axis, theme } = picture;
  for (const span of one.lane.pinned) {
    const from = LABEL_WIDTH + axis.place(span.begin, span.first);
    const to = LABEL_WIDTH + axis.place(span.end, span.last + 1);
    if (to < LABEL_WIDTH || from > LABEL_WIDTH + axis.width) continue;
    pen.fillStyle = fills.pinned;
    pen.fillRect(from, y + LANE_HEIGHT / 2 - 3, Math.max(to - from, 1), 6);
    if (to - from >= SIGN_AT_LEAST) sign(pen, PINNED.sign, from + 8, y + LANE_HEIGHT / 2, SURFACES[theme].text);
  }
  one.lane.turns.forEach((life, turn) => {
    const bar = barOf(one, turn);
    pen.globalAlpha = picture.meant && picture.meant[life.request] !== 1 ? 0.3 : 1;
    paintTurn(pen, picture, life, y + bar.top, bar.height, fills);
    pen.globalAlpha = 1;
  });
}

function paintTurn(
  pen: CanvasRenderingContext2D,
  picture: Picture,
  life: RequestLife,
  y: number,
  height: number,
  fills: Fills,
): void {
  const { axis, theme } = picture;
  const right = LABEL_WIDTH + axis.width;
  for (const phase of life.phases) {
    const from = Math.max(LABEL_WIDTH + axis.place(phase.begin, phase.first), LABEL_WIDTH - 2);
    const to = Math.min(LABEL_WIDTH + axis.place(phase.end, phase.last + 1), right + 2);
    if (to < LABEL_WIDTH || from > right) continue;
    const size = Math.max(to - from, 1);
    pen.fillStyle = fills[phase.kind];
    pen.fillRect(from, y, size, height);
    const { edge } = PHASES[phase.kind];
    if (edge && size > 3) {
      pen.strokeStyle = edge[theme];
      pen.strokeRect(from + 0.5, y + 0.5, size - 1, height - 1);
    }
    if (height > 10 && size >= SIGN_AT_LEAST && phase.kind === "preempted") {
      sign(pen, PHASES.preempted.sign, from + size / 2, y + height / 2, PHASES.preempted[theme].ink);
    }
    if (height > 10 && size >= TEXT_AT_LEAST && phase.kind === "decode") {
      sign(pen, picture.turnText(life.request), from + size / 2, y + height / 2, PHASES.decode[theme].ink, size - 6);
    }
  }
  if (picture.isCut(life.request)) cross(pen, picture, life, y, height);
  if (life.request === picture.focusRequest) outline(pen, picture, life, y, height);
}

/** Where a request was aborted: a red end with a cross. */
function cross(pen: CanvasRenderingContext2D, picture: Picture, life: RequestLife, y: number, height: number): void {
  const last = life.phases.at(-1);
  if (!last) return;
  const x = LABEL_WIDTH + picture.axis.place(last.end, last.last + 1);
  const { fill, ink } = SURFACES[picture.theme].blocked;
  pen.fillStyle = fill;
  pen.fillRect(x - 2, y, 3, height);
  if (height > 10) {
    pen.fillRect(x - 11, y, 12, height);
    sign(pen, "✕", x - 5, y + height / 2, ink);
  }
}

function outline(pen: CanvasRenderingContext2D, picture: Picture, life: RequestLife, y: number, height: number): void {
  const first = life.phases[0];
  const last = life.phases.at(-1);
  if (!first || !last) return;
  const from = LABEL_WIDTH + picture.axis.place(first.begin, first.first);
  const to = LABEL_WIDTH + picture.axis.place(last.end, last.last + 1);
  pen.strokeStyle = SURFACES[picture.theme].text;
  pen.lineWidth = 2;
  pen.strokeRect(from - 1, y - 2, Math.max(to - from, 2) + 2, height + 4);
  pen.lineWidth = 1;
}

function sign(pen: CanvasRenderingContext2D, text: string, x: number, y: number, color: string, most?: number): void {
  pen.fillStyle = color;
  pen.font = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
  pen.textAlign = "center";
  if (most === undefined || pen.measureText(text).width <= most) pen.fillText(text, x, y + 0.5);
  pen.textAlign = "left";
}

function label(pen: CanvasRenderingContext2D, one: DrawnLane, y: number, text: string, quiet: string): void {
  clipped(pen, 0, y, LABEL_WIDTH - 6, LANE_HEIGHT, () => {
    pen.textAlign = "left";
    pen.fillStyle = text;
    pen.font = "12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    pen.fillText(one.label, 8, y + LANE_HEIGHT / 2);
    const used = 8 + pen.measureText(one.label).width + 8;
    pen.fillStyle = quiet;
    pen.font = "11px system-ui, sans-serif";
    const room = LABEL_WIDTH - 8 - used;
    const note = one.notes.find((text) => pen.measureText(text).width <= room);
    if (note) pen.fillText(note, LABEL_WIDTH - 8 - pen.measureText(note).width, y + LANE_HEIGHT / 2);
  });
}

function overlays(pen: CanvasRenderingContext2D, picture: Picture, height: number): void {
  const { axis, selection } = picture;
  if (selection) {
    const from = LABEL_WIDTH + axis.rowX(selection.first);
    const to = LABEL_WIDTH + axis.rowX(selection.last + 1);
    pen.fillStyle = SURFACES[picture.theme].accent;
    pen.globalAlpha = 0.12;
    pen.fillRect(from, HEAD_HEIGHT, to - from, height - HEAD_HEIGHT);
    pen.globalAlpha = 1;
  }
  pen.fillStyle = SURFACES[picture.theme].hot;
  for (const mark of picture.marks)
    pen.fillRect(LABEL_WIDTH + axis.place(mark.ts, picture.rowAt(mark.ts)), HEAD_HEIGHT, 1, height);
  if (picture.focusRow >= 0) {
    const x = LABEL_WIDTH + axis.rowX(picture.focusRow);
    pen.strokeStyle = SURFACES[picture.theme].accent;
    line(pen, x, HEAD_HEIGHT, x, height);
  }
}

function head(pen: CanvasRenderingContext2D, picture: Picture, width: number): void {
  const { axis, theme } = picture;
  const surface = SURFACES[theme];
  pen.fillStyle = surface.raised;
  pen.fillRect(0, 0, width, HEAD_HEIGHT);
  pen.strokeStyle = surface.rule;
  line(pen, 0, HEAD_HEIGHT - 0.5, width, HEAD_HEIGHT - 0.5);
  line(pen, LABEL_WIDTH - 0.5, 0, LABEL_WIDTH - 0.5, HEAD_HEIGHT);
  pen.font = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
  pen.fillStyle = surface.quiet;
  pen.fillText(picture.head, 8, HEAD_HEIGHT / 2);
  clipped(pen, LABEL_WIDTH, 0, width - LABEL_WIDTH, HEAD_HEIGHT, () => {
    for (const tick of axis.ticks) {
      line(pen, LABEL_WIDTH + tick.x + 0.5, HEAD_HEIGHT - 6, LABEL_WIDTH + tick.x + 0.5, HEAD_HEIGHT);
      // The last one stands left of its mark, where there is no room to its right.
      const size = pen.measureText(tick.text).width;
      const left = tick.x + 4 + size > axis.width ? tick.x - 4 - size : tick.x + 4;
      pen.fillText(tick.text, LABEL_WIDTH + left, HEAD_HEIGHT / 2);
    }
  });
}

function line(pen: CanvasRenderingContext2D, fromX: number, fromY: number, toX: number, toY: number): void {
  pen.beginPath();
  pen.moveTo(fromX, fromY);
  pen.lineTo(toX, toY);
  pen.stroke();
}

function clipped(
  pen: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  draw: () => void,
): void {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  draw();
  pen.restore();
}
