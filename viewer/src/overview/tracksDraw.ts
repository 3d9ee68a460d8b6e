/** Draws the run along its clock: waiting requests stacked by reason, what ran, blocks, tokens, and the worst requests. */

import { hatched } from "../charts/patterns";
import { PHASES } from "../charts/tones";
import type { RequestLife } from "../data/model/lives";
import type { Pressure } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { shortCount } from "../format";
import { fitText, type Ink, rule, takeInk, tone, write } from "../ink";
import type { ThemeName } from "../palette";

export const LABEL = 136;
const RIGHT = 12;
const TRACK = 34;
const TRACK_GAP = 8;
export const LANE = 17;
export const AXIS = 20;
const TOP = 6;
const HEAD = 15;

export interface Mark {
  ts: number;
  text: string;
}

export interface TracksScene {
  store: TraceStore;
  pressure: Pressure;
  theme: ThemeName;
  width: number;
  /** Height of the stacked area. */
  area: number;
  lanes: { life: RequestLife; label: string; cut: boolean }[];
  marks: readonly Mark[];
  /** Worst stretch and selection, on the trace's clock. */
  worst: { begin: number; end: number } | null;
  chosen: { begin: number; end: number } | null;
  /** Under the pointer; NaN: nothing. */
  at: number;
  focusRequest: number;
  tick(ts: number): string;
}

export function heightOf(area: number, lanes: number): number {
  return TOP + area + TRACK_GAP + 3 * (TRACK + TRACK_GAP) + AXIS + (lanes > 0 ? HEAD + lanes * LANE : 0);
}

/** Top of the lanes. */
export function lanesTop(area: number): number {
  return TOP + area + TRACK_GAP + 3 * (TRACK + TRACK_GAP) + AXIS + HEAD;
}

export function placeOf({ pressure, width }: Pick<TracksScene, "pressure" | "width">, ts: number): number {
  const span = pressure.width * pressure.slices;
  return LABEL + ((ts - pressure.from) / span) * Math.max(width - LABEL - RIGHT, 1);
}

export function timeAt({ pressure, width }: Pick<TracksScene, "pressure" | "width">, x: number): number {
  const share = (x - LABEL) / Math.max(width - LABEL - RIGHT, 1);
  return pressure.from + Math.min(Math.max(share, 0), 1) * pressure.width * pressure.slices;
}

export function drawTracks(canvas: HTMLCanvasElement, scene: TracksScene): void {
  const height = heightOf(scene.area, scene.lanes.length);
  const ink = takeInk(canvas, scene.width, height, scene.theme);
  if (!ink) return;
  const bottom = TOP + scene.area + TRACK_GAP + 3 * (TRACK + TRACK_GAP);
  shade(ink, scene, scene.worst, 0.1, ink.surface.hot, bottom);
  stack(ink, scene);
  const { running, kv, tokensPerSecond } = scene.pressure;
  let top = TOP + scene.area + TRACK_GAP;
  track(ink, scene, top, "running", running, shortCount);
  top += TRACK + TRACK_GAP;
  track(ink, scene, top, "KV blocks in use", kv, (value) => `${Math.round(100 * value)} %`, 1);
  top += TRACK + TRACK_GAP;
  track(ink, scene, top, "tokens / s", tokensPerSecond, shortCount);
  axis(ink, scene, bottom);
  lanes(ink, scene, bottom + AXIS);
  shade(ink, scene, scene.chosen, 0.16, ink.surface.accent, height);
  for (const { ts, text } of scene.marks) {
    const x = placeOf(scene, ts);
    if (x < LABEL || x > scene.width) continue;
    rule(ink, Math.round(x), TOP, 1, bottom - TOP, ink.surface.hot);
    write(ink, fitText(text, 160, ink.char), x + 3, TOP + 7, ink.surface.hot);
  }
  if (!Number.isNaN(scene.at)) rule(ink, placeOf(scene, scene.at), TOP, 1, height - TOP, ink.surface.text);
}

function shade(
  ink: Ink,
  scene: TracksScene,
  span: { begin: number; end: number } | null,
  alpha: number,
  colour: string,
  bottom: number,
): void {
  if (!span) return;
  const from = Math.max(placeOf(scene, span.begin), LABEL);
  const to = Math.min(placeOf(scene, span.end), scene.width - RIGHT);
  if (to <= from) return;
  ink.context.globalAlpha = alpha;
  rule(ink, from, TOP, Math.max(to - from, 2), bottom - TOP, colour);
  ink.context.globalAlpha = 1;
}

/** A round number at or above a value: the top of an axis. */
export function roundTop(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const digit of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (digit * power >= value * 0.999) return digit * power;
  return 10 * power;
}

function stack(ink: Ink, scene: TracksScene): void {
  const { pressure, area, store } = scene;
  const sums = new Float64Array(pressure.slices);
  for (const { held } of pressure.reasons) for (let at = 0; at < sums.length; at++) sums[at] += held[at];
  const most = roundTop(sums.reduce((one, other) => (other > one ? other : one), 0));
  const y = (value: number) => TOP + area - (value / most) * (area - 4);
  for (const share of pressure.reasons.length > 0 ? [0, 0.5, 1] : [0]) {
    rule(ink, LABEL, Math.round(y(most * share)), scene.width - LABEL - RIGHT, 1);
    const text = share === 0 ? "0" : most < 10 ? String(most * share) : shortCount(most * share);
    write(ink, text, LABEL - 6 - text.length * ink.char, Math.max(y(most * share), TOP + 5), ink.surface.quiet);
  }
  write(ink, "waiting,", 4, TOP + 8, ink.surface.text);
  write(ink, "by reason", 4, TOP + 22, ink.surface.quiet);
  const below = new Float64Array(pressure.slices);
  const { context } = ink;
  for (const { shown, held } of pressure.reasons) {
    context.fillStyle = tone(store.shown[shown].family, ink.theme).fill;
    context.beginPath();
    for (let at = 0; at < held.length; at++) step(ink, scene, at, y(below[at] + held[at]));
    for (let at = held.length - 1; at >= 0; at--) step(ink, scene, at, y(below[at]), true);
    context.closePath();
    context.fill();
    for (let at = 0; at < held.length; at++) below[at] += held[at];
  }
}

function step(ink: Ink, scene: TracksScene, at: number, y: number, back = false): void {
  const { from, width } = scene.pressure;
  const [left, right] = [placeOf(scene, from + at * width), placeOf(scene, from + (at + 1) * width)];
  ink.context.lineTo(back ? right : left, y);
  ink.context.lineTo(back ? left : right, y);
}

function track(
  ink: Ink,
  scene: TracksScene,
  top: number,
  name: string,
  values: Float64Array,
  text: (value: number) => string,
  fixedTop?: number,
): void {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  const high = fixedTop ?? roundTop(most);
  const bottom = top + TRACK;
  write(ink, fitText(name, LABEL - 6, ink.char), 4, top + 7, ink.surface.text);
  write(ink, fitText(`to ${text(most)}`, LABEL - 6, ink.char), 4, top + 21, ink.surface.quiet);
  rule(ink, LABEL, bottom, scene.width - LABEL - RIGHT, 1);
  const { context } = ink;
  context.beginPath();
  let open = false;
  const at = (index: number, value: number) => {
    const y = bottom - (Math.min(value, high) / high) * TRACK;
    if (!open) context.moveTo(placeOf(scene, scene.pressure.from + index * scene.pressure.width), bottom);
    open = true;
    step(ink, scene, index, y);
  };
  for (let index = 0; index < values.length; index++) at(index, values[index] || 0);
  context.lineTo(placeOf(scene, scene.pressure.from + values.length * scene.pressure.width), bottom);
  context.globalAlpha = 0.75;
  context.fillStyle = ink.surface.bar;
  context.fill();
  context.globalAlpha = 1;
}

/** Pixels between two marks, at least. */
const SPACE = 90;
const ROUND = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
];

function axis(ink: Ink, scene: TracksScene, top: number): void {
  const { from, width, slices, origin } = scene.pressure;
  const span = width * slices;
  const least = (SPACE / Math.max(scene.width - LABEL, 1)) * span;
  const by = ROUND.find((seconds) => seconds >= least) ?? Math.ceil(least / 3600) * 3600;
  rule(ink, LABEL, top, scene.width - LABEL - RIGHT, 1, ink.surface.quiet);
  for (let tick = Math.ceil((from - origin) / by) * by; tick <= from - origin + span; tick += by) {
    const x = placeOf(scene, origin + tick);
    rule(ink, Math.round(x), top, 1, 4, ink.surface.quiet);
    const text = scene.tick(origin + tick);
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
    write(
      ink,
      fitText(label, LABEL - 8, ink.char),
      4,
      y + LANE / 2,
      chosen ? ink.surface.text : ink.surface.quiet,
      chosen,
    );
    context.save();
    context.beginPath();
    context.rect(LABEL, y, scene.width - LABEL - RIGHT, LANE);
    context.clip();
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
    context.restore();
  });
}
