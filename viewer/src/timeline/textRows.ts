/** Rows high enough to be read: five columns, as the trace format's viewer has them. */

import type { Badge, Pill } from "../data/model/moment";
import type { ReasonFamily } from "../data/model/reasons";
import { fitEnds, fitText, type Ink, rule, tone, write, writeRight } from "../ink";
import { FLAME_PATH, OVERLAYS, PILLS } from "../palette";
import type { Column } from "./geometry";

const LINE = 17;
const PILL_HEIGHT = 14;
const PAD = 4;
const GAP = 4;

/** Everything that one row shows, made when it comes into view. */
export interface RowContent {
  step: string;
  elapsed: string;
  delta: string;
  badges: Badge[];
  running: Pill[];
  waiting: Pill[];
  runningOmitted: number;
  waitingOmitted: number;
  family: ReasonFamily;
  blocked: boolean;
}

/** Where a pill was drawn, to find it under the mouse. */
export interface PillSpot {
  x: number;
  y: number;
  width: number;
  pill: Pill;
}

export interface BadgeSpot {
  x: number;
  y: number;
  width: number;
  badge: Badge;
}

/** What was drawn where. */
export interface Spots {
  pills: PillSpot[];
  badges: BadgeSpot[];
}

/** Draw one row; answers where its parts are. `meant` dims the pills of all other requests. */
export function drawTextRow(
  ink: Ink,
  columns: readonly Column[],
  content: RowContent,
  top: number,
  height: number,
  meant: ((request: number) => boolean) | null,
): Spots {
  const lines = Math.max(1, Math.floor((height - 3) / LINE));
  const [step, ts, batch, running, waiting] = columns;
  const middle = top + 2 + LINE / 2;
  const { surface } = ink;
  rule(ink, 0, top, 3, height - 1, tone(content.family, ink.theme).fill);
  writeRight(ink, content.step, step.x + step.width - 8, middle, surface.text);
  if (ts.width > 0) writeRight(ink, content.elapsed, ts.x + ts.width - 8, middle, surface.text);
  if (ts.width > 0 && lines > 1) writeRight(ink, content.delta, ts.x + ts.width - 8, middle + LINE, surface.quiet);
  const badges = drawBadges(ink, batch, content.badges, top + 2, lines);
  const spots: PillSpot[] = [];
  drawPills(ink, running, content.running, content.runningOmitted, top + 2, lines, meant, spots);
  drawPills(ink, waiting, content.waiting, content.waitingOmitted, top + 2, lines, meant, spots);
  return { pills: spots, badges };
}

/** In few lines what was held comes first. */
const FEW_LINES = 3;
const HELD = new Set<Badge["kind"]>(["recorded", "blocked"]);
/** Room for the flame that marks a budget nearly spent. */
const FLAME = 14;
const OWN_LINE = new Set<Badge["kind"]>(["vram", "dram", "blocked", "recorded"]);

function drawBadges(ink: Ink, column: Column, badges: readonly Badge[], top: number, lines: number): BadgeSpot[] {
  const held = (badge: Badge) => HELD.has(badge.kind);
  const ordered = lines >= FEW_LINES ? badges : [...badges.filter(held), ...badges.filter((badge) => !held(badge))];
  const right = column.x + column.width - 6;
  const spots: BadgeSpot[] = [];
  let x = column.x + 2;
  let line = 0;
  for (const badge of ordered) {
    const wanted = badge.label.length * ink.char + 2 * PAD + (badge.hot ? FLAME : 0);
    const wide = OWN_LINE.has(badge.kind);
    if (x > column.x + 2 && (x + wanted > right || (wide && lines > 1))) {
      line += 1;
      x = column.x + 2;
    }
    if (line >= lines) return spots;
    const width = Math.min(wanted, right - x);
    drawBadge(ink, badge, x, top + line * LINE, width);
    spots.push({ x, y: top + line * LINE, width, badge });
    x += wanted + 1;
    if (wide && lines > 1) x = right;
  }
  return spots;
}

function drawBadge(ink: Ink, badge: Badge, x: number, top: number, width: number): void {
  const { context, surface } = ink;
  const middle = top + LINE / 2;
  const text = fitText(badge.label, width - 2 * PAD + 1 - (badge.hot ? FLAME : 0), ink.char);
  if (badge.kind === "blocked" || badge.kind === "recorded") {
    box(context, x, top + 1, width, PILL_HEIGHT + 1, surface.blocked.fill);
    write(ink, text, x + PAD, middle, surface.blocked.ink);
    return;
  }
  const faint = badge.label.endsWith(":0");
  const colour = badge.hot ? surface.hot : faint ? surface.quiet : surface.text;
  write(ink, text, x + PAD, middle, colour, badge.hot === true);
  if (badge.hot) flame(context, x + PAD + text.length * ink.char + 6, middle, surface.hot);
}

function drawPills(
  ink: Ink,
  column: Column,
  pills: readonly Pill[],
  omitted: number,
  top: number,
  lines: number,
  meant: ((request: number) => boolean) | null,
  spots: PillSpot[],
): void {
  if (pills.length === 0 && omitted === 0) return;
  const left = column.x + 4;
  const right = column.x + column.width - 6;
  const textOf =
    [fullText, mediumText].find((text) => fits(ink, pills, omitted, right - left, lines, text)) ?? shortText;
  let x = left;
  let line = 0;
  for (let at = 0; at < pills.length; at++) {
    const text = textOf(pills[at]);
    const width = Math.min(text.length * ink.char + 2 * PAD, right - left);
    const rest = pills.length - at + omitted;
    const tail = line === lines - 1 && rest > 1 ? moreText(rest).length * ink.char + GAP : 0;
    if (x + width + tail > right && x > left) {
      line += 1;
      x = left;
      if (line >= lines) {
        more(ink, rest, right, top + (lines - 1) * LINE);
        return;
      }
    }
    const dim = meant !== null && !meant(pills[at].request);
    drawPill(ink, pills[at], text, x, top + line * LINE, width, dim);
    spots.push({ x, y: top + line * LINE, width, pill: pills[at] });
    x += width + GAP;
  }
  if (omitted > 0) more(ink, omitted, right, top + line * LINE);
}

function fullText(pill: Pill): string {
  return `${PILLS[pill.kind].letter} ${pill.pinned ? `${OVERLAYS.pinned.letter} ` : ""}${pill.label}`;
}

/** Without the numbers: job, turn and age. */
function mediumText(pill: Pill): string {
  const end = pill.label.indexOf(" [");
  return fullText(end < 0 ? pill : { ...pill, label: pill.label.slice(0, end) });
}

function shortText(pill: Pill): string {
  return `${PILLS[pill.kind].letter} ${pill.pinned ? OVERLAYS.pinned.letter : ""}${pill.short}`;
}

function moreText(count: number): string {
  return `+${count}`;
}

function more(ink: Ink, count: number, right: number, top: number): void {
  const text = moreText(count);
  rule(ink, right - text.length * ink.char - 3, top + 1, text.length * ink.char + 3, LINE - 2, ink.surface.page);
  writeRight(ink, text, right, top + LINE / 2, ink.surface.quiet);
}

function fits(
  ink: Ink,
  pills: readonly Pill[],
  omitted: number,
  width: number,
  lines: number,
  textOf: (pill: Pill) => string,
): boolean {
  let x = 0;
  let line = 0;
  const tail = omitted > 0 ? moreText(omitted).length * ink.char + GAP : 0;
  for (const pill of pills) {
    const wanted = textOf(pill).length * ink.char + 2 * PAD;
    if (wanted > width) return false;
    if (x > 0 && x + wanted > width) {
      line += 1;
      x = 0;
    }
    if (line >= lines) return false;
    x += wanted + GAP;
  }
  return x + tail <= width + GAP;
}

function drawPill(ink: Ink, pill: Pill, text: string, x: number, top: number, width: number, dim: boolean): void {
  const { context, surface } = ink;
  const { fill, ink: colour } = PILLS[pill.kind][ink.theme];
  if (dim) context.globalAlpha = 0.3;
  box(context, x, top + 1, width, PILL_HEIGHT + 1, fill);
  if (pill.prefill || pill.kind === "waiting") {
    context.strokeStyle = pill.prefill ? surface.prefill : surface.rule;
    context.lineWidth = pill.prefill ? 1.5 : 1;
    context.stroke();
  }
  write(ink, fitEnds(text, width - 2 * PAD + 1, ink.char), x + PAD, top + LINE / 2, colour);
  context.globalAlpha = 1;
}

function flame(context: CanvasRenderingContext2D, x: number, middle: number, fill: string): void {
  context.fillStyle = fill;
  context.save();
  context.translate(x - 5, middle - 6);
  context.fill(new Path2D(FLAME_PATH));
  context.restore();
}

function box(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  fill: string,
): void {
  context.fillStyle = fill;
  context.beginPath();
  context.roundRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1, 3);
  context.fill();
}
