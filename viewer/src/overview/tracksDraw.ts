/** Draws the run along its clock: waiting requests stacked by reason, what ran, blocks, tokens, and the worst requests. */

import { wanted } from "../charts/axis";
import { roundTop, timeMarks } from "../charts/marks";
import { hatched } from "../charts/patterns";
import { PHASES } from "../charts/tones";
import type { RequestLife } from "../data/model/lives";
import type { Pressure, TokenTrack } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { shortCount } from "../format";
import { fitText, type Ink, rule, takeInk, tone, write } from "../ink";
import type { ThemeName } from "../palette";
import type { Mark } from "../state/marks";

export const LABEL = 136;
export const RIGHT = 12;
const TRACK = 34;
/** Of tokens by request. */
const TALL = 74;
const TRACK_GAP = 8;
export const LANE = 17;
const AXIS = 20;
const TOP = 6;
const HEAD = 15;

interface Span {
  begin: number;
  end: number;
}

export interface TracksScene {
  store: TraceStore;
  /** Perhaps still of what was in view before. */
  pressure: Pressure;
  /** What is in view, on the clock of the pressure. */
  window: Span;
  /** The trace has times; else a row is a second. */
  timed: boolean;
  /** Requests that got most tokens, with their names; none: their sum is enough. */
  takers: readonly (TokenTrack & { name: string })[];
  /** Other engines of the run; and what this one is called then. */
  engines: readonly { name: string; store: TraceStore; pressure: Pressure | null }[];
  engineName: string;
  /** Where the filter lets rows through; null: everywhere. */
  kept: readonly Span[] | null;
  theme: ThemeName;
  width: number;
  /** Height of the stacked area. */
  area: number;
  lanes: { life: RequestLife; label: string; cut: boolean }[];
  marks: readonly Mark[];
  /** Worst stretch and selection, on the trace's clock. */
  worst: Span | null;
  chosen: Span | null;
  /** Where the step begins that is looked at, and what is under the pointer; NaN: nothing. */
  focused: number;
  at: number;
  focusRequest: number;
  tick(ts: number): string;
  /** What the clock shows at the origin, in seconds. */
  base: number;
  /** At a mark of the axis, which neighbours do not share. */
  mark(ts: number): string;
}

type Sizes = Pick<TracksScene, "area" | "takers" | "engines" | "lanes">;

type Sliced = Pick<TracksScene, "pressure" | "window">;

/** Where the tracks of other engines lie, of which each takes as much. */
export function enginesTop({ area, takers }: Pick<Sizes, "area" | "takers">): number {
  return TOP + area + TRACK_GAP + 3 * (TRACK + TRACK_GAP) + (takers.length > 0 ? TALL - TRACK : 0);
}
export const ENGINE = 40 + TRACK_GAP;

/** Where the axis lies, below the tracks. */
function axisTop(scene: Sizes): number {
  return enginesTop(scene) + scene.engines.length * ENGINE;
}

export function heightOf(scene: Sizes): number {
  return axisTop(scene) + AXIS + (scene.lanes.length > 0 ? HEAD + scene.lanes.length * LANE : 0);
}

/** Top of the lanes. */
export function lanesTop(scene: Sizes): number {
  return axisTop(scene) + AXIS + HEAD;
}

export function placeOf({ window: { begin, end }, width }: Pick<TracksScene, "window" | "width">, ts: number): number {
  return LABEL + ((ts - begin) / Math.max(end - begin, 1e-9)) * Math.max(width - LABEL - RIGHT, 1);
}

export function timeAt({ window: { begin, end }, width }: Pick<TracksScene, "window" | "width">, x: number): number {
  const share = (x - LABEL) / Math.max(width - LABEL - RIGHT, 1);
  return begin + Math.min(Math.max(share, 0), 1) * (end - begin);
}

export function drawTracks(canvas: HTMLCanvasElement, scene: TracksScene): void {
  const height = heightOf(scene);
  const ink = takeInk(canvas, scene.width, height, scene.theme);
  if (!ink) return;
  const bottom = axisTop(scene);
  shade(ink, scene, scene.worst, 0.1, ink.surface.hot, bottom);
  stack(ink, scene);
  const { running, mostRunning, kv, mostKv, tokensPerSecond } = scene.pressure;
  let top = TOP + scene.area + TRACK_GAP;
  track(ink, scene, top, TRACK, "running", running, shortCount, mostRunning);
  top += TRACK + TRACK_GAP;
  track(ink, scene, top, TRACK, "KV blocks in use", kv, (value) => `${Math.round(100 * value)} %`, mostKv, 1);
  top += TRACK + TRACK_GAP;
  const tall = scene.takers.length > 0 ? TALL : TRACK;
  // A mean by slice, unlike the peaks above it, which are those of steps.
  const slice = (value: number) => `${shortCount(value)} in a bar`;
  const high = track(ink, scene, top, tall, scene.timed ? "tokens / s" : "tokens / step", tokensPerSecond, slice);
  takers(ink, scene, top, tall, high);
  scene.engines.forEach((each, at) => {
    engine(ink, scene, each, enginesTop(scene) + at * ENGINE);
  });
  axis(ink, scene, bottom);
  lanes(ink, scene, bottom + AXIS);
  shade(ink, scene, scene.chosen, 0.16, ink.surface.accent, height);
  within(ink, scene, height, () => {
    for (const { begin, end } of scene.kept ?? []) {
      const x = placeOf(scene, begin);
      rule(ink, x, bottom - 4, Math.max(placeOf(scene, end) - x, 1), 4, ink.surface.accent);
    }
    for (const mark of scene.marks) moment(ink, scene, mark, bottom);
    if (!Number.isNaN(scene.focused))
      rule(ink, placeOf(scene, scene.focused), TOP, 2, height - TOP, ink.surface.accent);
    if (!Number.isNaN(scene.at)) rule(ink, placeOf(scene, scene.at), TOP, 1, height - TOP, ink.surface.text);
  });
}

/** What is computed may reach beyond what is in view: nothing is drawn over the names. */
function within({ context }: Ink, { width }: TracksScene, height: number, draw: () => void): void {
  context.save();
  context.beginPath();
  context.rect(LABEL, 0, width - LABEL - RIGHT, height);
  context.clip();
  draw();
  context.restore();
}

function moment(ink: Ink, scene: TracksScene, { ts, end, text }: Mark, bottom: number): void {
  const x = placeOf(scene, ts);
  if (end > ts) shade(ink, scene, { begin: ts, end }, 0.14, ink.surface.accent, bottom);
  rule(ink, Math.round(x), TOP, 1, bottom - TOP, ink.surface.hot);
  write(ink, fitText(text, 160, ink.char), Math.max(x, LABEL) + 3, TOP + 7, ink.surface.hot);
}

function shade(ink: Ink, scene: TracksScene, span: Span | null, alpha: number, colour: string, bottom: number): void {
  if (!span) return;
  const from = Math.max(placeOf(scene, span.begin), LABEL);
  const to = Math.min(placeOf(scene, span.end), scene.width - RIGHT);
  if (to <= from) return;
  ink.context.globalAlpha = alpha;
  rule(ink, from, TOP, Math.max(to - from, 2), bottom - TOP, colour);
  ink.context.globalAlpha = 1;
}

/** The slices that are in view, both included. */
function slicesIn({ pressure: { from, width, slices }, window: { begin, end } }: Sliced): [number, number] {
  const within = (at: number) => Math.min(Math.max(at, 0), slices - 1);
  return [within(Math.floor((begin - from) / width)), within(Math.ceil((end - from) / width) - 1)];
}

/** The largest in view. */
function mostIn(scene: Sliced, value: (at: number) => number): number {
  const [first, last] = slicesIn(scene);
  let most = 0;
  for (let at = first; at <= last; at++) if (value(at) > most) most = value(at);
  return most;
}

/** Layers upon each other, each slice as wide as it lasts; `y` places a sum of what lies below and the layer itself. */
function layers(
  ink: Ink,
  scene: TracksScene,
  all: readonly { values: Float64Array; fill: string; alpha?: number }[],
  y: (value: number) => number,
): void {
  const below = new Float64Array(scene.pressure.slices);
  const [first, last] = slicesIn(scene);
  const { context } = ink;
  within(ink, scene, ink.height, () => {
    for (const { values, fill, alpha } of all) {
      context.fillStyle = fill;
      context.globalAlpha = alpha ?? 1;
      context.beginPath();
      for (let at = first; at <= last; at++) step(ink, scene, at, y(below[at] + (values[at] || 0)));
      for (let at = last; at >= first; at--) step(ink, scene, at, y(below[at]), true);
      context.closePath();
      context.fill();
      for (let at = first; at <= last; at++) below[at] += values[at] || 0;
    }
    context.globalAlpha = 1;
  });
}

function step(ink: Ink, scene: TracksScene, at: number, y: number, back = false): void {
  const { from, width } = scene.pressure;
  const [left, right] = [placeOf(scene, from + at * width), placeOf(scene, from + (at + 1) * width)];
  ink.context.lineTo(back ? right : left, y);
  ink.context.lineTo(back ? left : right, y);
}

function stack(ink: Ink, scene: TracksScene): void {
  const { pressure, area, store } = scene;
  const sums = new Float64Array(pressure.slices);
  for (const { held } of pressure.reasons) for (let at = 0; at < sums.length; at++) sums[at] += held[at];
  const most = roundTop(mostIn(scene, (at) => sums[at]));
  const y = (value: number) => TOP + area - (value / most) * (area - 4);
  for (const share of pressure.reasons.length > 0 ? [0, 0.5, 1] : [0]) {
    rule(ink, LABEL, Math.round(y(most * share)), scene.width - LABEL - RIGHT, 1);
    const text = share === 0 ? "0" : most < 10 ? String(most * share) : shortCount(most * share);
    write(ink, text, LABEL - 6 - text.length * ink.char, Math.max(y(most * share), TOP + 5), ink.surface.quiet);
  }
  write(ink, "waiting,", 4, TOP + 8, ink.surface.text);
  write(ink, "by reason", 4, TOP + 22, ink.surface.quiet);
  write(ink, scene.engineName, 4, TOP + 38, ink.surface.text, true);
  layers(ink, scene, heldLayers(ink, store, pressure), y);
}

function heldLayers(ink: Ink, store: TraceStore, { reasons }: Pressure) {
  return reasons.map(({ shown, held }) => {
    return { values: held, fill: tone(store.shown[shown].family, ink.theme).fill };
  });
}

/** Requests of another engine: those that run, and upon them those that wait, by reason. */
function engine(ink: Ink, whole: TracksScene, { name, store, pressure }: TracksScene["engines"][number], top: number) {
  const bottom = top + ENGINE - TRACK_GAP;
  write(ink, fitText(name, LABEL - 8, ink.char), 4, top + 8, ink.surface.text, true);
  rule(ink, LABEL, bottom, whole.width - LABEL - RIGHT, 1);
  if (!pressure) return;
  const scene = { ...whole, pressure };
  const all = [{ values: pressure.running, fill: ink.surface.bar, alpha: 0.75 }, ...heldLayers(ink, store, pressure)];
  const most = roundTop(mostIn(scene, (at) => all.reduce((sum, { values }) => sum + (values[at] || 0), 0)));
  write(ink, `requests up to ${most < 10 ? most : shortCount(most)}`, 4, top + 22, ink.surface.quiet);
  layers(ink, scene, all, (value) => bottom - (value / most) * (bottom - top));
}

/** Answers what its full height means. */
function track(
  ink: Ink,
  scene: TracksScene,
  top: number,
  height: number,
  name: string,
  values: Float64Array,
  text: (value: number) => string,
  /** Of which the largest is named. */
  peaks: Float64Array = values,
  fixedTop?: number,
): number {
  const most = mostIn(scene, (at) => values[at]);
  const high = fixedTop ?? roundTop(most);
  const bottom = top + height;
  write(ink, fitText(name, LABEL - 6, ink.char), 4, top + 7, ink.surface.text);
  write(
    ink,
    fitText(`up to ${text(mostIn(scene, (at) => peaks[at]))}`, LABEL - 6, ink.char),
    4,
    top + 21,
    ink.surface.quiet,
  );
  rule(ink, LABEL, bottom, scene.width - LABEL - RIGHT, 1);
  const y = (value: number) => bottom - (Math.min(value, high) / high) * height;
  layers(ink, scene, [{ values, fill: ink.surface.bar, alpha: 0.75 }], y);
  return high;
}

/** The requests that got most of the tokens, from the bottom up; what is left grey went to others. */
function takers(ink: Ink, scene: TracksScene, top: number, height: number, high: number): void {
  const all = scene.takers.map(({ perSecond }, at) => {
    return { values: perSecond, fill: ink.surface.accent, alpha: at % 2 === 0 ? 1 : 0.55 };
  });
  layers(ink, scene, all, (value) => top + height - (Math.min(value, high) / high) * height);
  scene.takers.slice(0, 3).forEach(({ name }, at) => {
    write(ink, fitText(name, LABEL - 6, ink.char), 4, top + 35 + 14 * at, ink.surface.quiet);
  });
}

/** Pixels between two marks, at least. */
const SPACE = 90;

function axis(ink: Ink, scene: TracksScene, top: number): void {
  const { begin, end } = scene.window;
  const { origin } = scene.pressure;
  rule(ink, LABEL, top, scene.width - LABEL - RIGHT, 1, ink.surface.quiet);
  const room = wanted(scene.width - LABEL, SPACE);
  for (const tick of timeMarks(begin - origin, end - origin, room, scene.timed ? 0 : 1, scene.base)) {
    const x = placeOf(scene, origin + tick);
    rule(ink, Math.round(x), top, 1, 4, ink.surface.quiet);
    const text = scene.mark(origin + tick);
    const left = Math.min(x + 3, scene.width - text.length * ink.char - 2);
    write(ink, text, left, top + 10, ink.surface.quiet);
  }
}

function lanes(ink: Ink, scene: TracksScene, top: number): void {
  if (scene.lanes.length === 0) return;
  write(ink, "slowest requests", 4, top + 7, ink.surface.text);
  const { context } = ink;
  scene.lanes.forEach(({ life, label, cut }, index) => {
    const y = top + HEAD + index * LANE;
    const chosen = life.request === scene.focusRequest;
    const colour = chosen ? ink.surface.text : ink.surface.quiet;
    write(ink, fitText(label, LABEL - 8, ink.char), 4, y + LANE / 2, colour, chosen);
    within(ink, scene, ink.height, () => {
      for (const phase of life.phases) {
        const [from, to] = [placeOf(scene, phase.begin), placeOf(scene, phase.end)];
        const look = PHASES[phase.kind];
        context.fillStyle = to - from < 6 ? look[ink.theme].fill : hatched(look[ink.theme], look.hatch);
        context.fillRect(from, y + 3, Math.max(to - from, 1), LANE - 6);
      }
      const last = life.phases.at(-1);
      if (cut && last) {
        const x = placeOf(scene, last.end);
        rule(ink, x - 2, y + 1, 3, LANE - 2, ink.surface.blocked.fill);
        write(ink, "✕", x + 3, y + LANE / 2, ink.surface.hot, true);
      }
    });
  });
}
