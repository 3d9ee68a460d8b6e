/** Rows too low to be read: one bar per row, or one line of pixels for many rows, from the levels of detail. */

import { originOf } from "../data/clock";
import { MISSING, type Row, type Whole } from "../data/model/columns";
import type { Level, LevelsOfDetail } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";
import { FONT_SIZE, familyFill, type Ink, writeRight } from "../ink";
import { PILLS } from "../palette";
import type { Axis } from "./axis";
import { type Column, type Geometry, visible, yOf } from "./geometry";

/** What full bars mean. */
export interface Scales {
  running: number;
  waiting: number;
}

const LABEL_EVERY = FONT_SIZE + 7;

/** Every row in view as a strip of its own. */
export function drawBars(
  ink: Ink,
  columns: readonly Column[],
  store: TraceStore,
  axis: Axis,
  geometry: Geometry,
  scales: Scales,
): void {
  const { first, last } = visible(geometry);
  const { rowHeight } = geometry;
  const gap = rowHeight >= 4 ? 1 : 0;
  const [, , batch, running, waiting] = columns;
  let runFrom = first;
  for (let place = first; place <= last; place++) {
    const row = axis.rowAt(place);
    const y = yOf(geometry, place);
    const next = place < last ? axis.rowAt(place + 1) : -1;
    if (next < 0 || store.steps.shown[next] !== store.steps.shown[row]) {
      const from = yOf(geometry, runFrom);
      reasonCell(ink, batch, store, row, from, y + rowHeight - from);
      runFrom = place + 1;
    }
    tokenBar(ink, batch, store, row, y, rowHeight - gap);
    runningBar(ink, running, store, row, y, rowHeight - gap, scales.running);
    const waitingNow = known(store.steps.numWaiting, row);
    bar(ink, waiting, waitingNow / scales.waiting, y, rowHeight - gap, PILLS.waiting[ink.theme].fill);
    outline(ink, waiting, waitingNow / scales.waiting, y, rowHeight - gap);
  }
  labels(ink, columns, store, axis, geometry, first, last);
}

/** Many rows per pixel: extremes, means and the dominant reason of each line of pixels. */
export function drawLevels(
  ink: Ink,
  columns: readonly Column[],
  store: TraceStore,
  axis: Axis,
  geometry: Geometry,
  levels: LevelsOfDetail | null,
  scales: Scales,
): void {
  const { top, rowHeight, height, count } = geometry;
  const level = axis.count === store.rows ? (levels?.pick(1 / rowHeight) ?? null) : null;
  const [, , batch, running, waiting] = columns;
  const end = Math.min(height, (count - top) * rowHeight);
  let runShown = -1;
  let runFrom = 0;
  const flush = (y: number) => {
    if (runShown >= 0 && y > runFrom) {
      ink.context.fillStyle = familyFill(ink, store.shown[runShown].family);
      ink.context.fillRect(batch.x + 4, runFrom, batch.width * REASON_SHARE, y - runFrom);
    }
  };
  for (let y = 0; y < end; y++) {
    const from = top + y / rowHeight;
    const line = summary(store, axis, level, from, Math.max(top + (y + 1) / rowHeight, from + 1e-9));
    if (line.shown !== runShown) {
      flush(y);
      runShown = line.shown;
      runFrom = y;
    }
    bar(ink, shifted(batch, REASON_SHARE), line.blockedShare, y, 1, ink.surface.blocked.fill);
    bar(ink, running, line.running.max / scales.running, y, 1, ink.surface.rule);
    bar(ink, running, line.running.mean / scales.running, y, 1, ink.surface.bar);
    bar(ink, waiting, line.waiting.max / scales.waiting, y, 1, ink.surface.rule);
    bar(ink, waiting, line.waiting.mean / scales.waiting, y, 1, ink.surface.bar);
  }
  flush(end);
  const { first, last } = visible(geometry);
  labels(ink, columns, store, axis, geometry, first, last);
}

/** Left part of the batch column: the reason. The right part: tokens, or the share of blocked steps. */
const REASON_SHARE = 0.42;

function shifted(column: Column, share: number): Column {
  return { ...column, x: column.x + column.width * share + 6, width: column.width * (1 - share) - 6 };
}

interface Summary {
  shown: number;
  blockedShare: number;
  running: { max: number; mean: number };
  waiting: { max: number; mean: number };
}

/** At most so many rows are looked at per line of pixels where no level fits. */
const SAMPLES = 16;

function summary(store: TraceStore, axis: Axis, level: Level | null, from: number, to: number): Summary {
  return level ? ofLevel(level, from, to) : ofRows(store, axis, from, to);
}

function ofLevel(level: Level, from: number, to: number): Summary {
  const size = 2 ** level.k;
  const first = Math.min(Math.floor(from / size), level.bins - 1);
  const last = Math.min(Math.max(Math.ceil(to / size) - 1, first), level.bins - 1);
  const series = (name: "numRunning" | "numWaiting") => {
    let [max, sum, known] = [0, 0, 0];
    for (let bin = first; bin <= last; bin++) {
      if (level.max[name][bin] > max) max = level.max[name][bin];
      sum += level.sum[name][bin];
      known += level.known[name][bin];
    }
    return { max, mean: known > 0 ? sum / known : 0 };
  };
  let share = 0;
  for (let bin = first; bin <= last; bin++) share += level.blockedShare[bin];
  return {
    shown: level.dominant[first],
    blockedShare: share / (last - first + 1),
    running: series("numRunning"),
    waiting: series("numWaiting"),
  };
}

function ofRows(store: TraceStore, axis: Axis, from: number, to: number): Summary {
  const first = Math.min(Math.floor(from), axis.count - 1);
  const last = Math.min(Math.max(Math.ceil(to) - 1, first), axis.count - 1);
  const stride = Math.max(1, (last - first + 1) / SAMPLES);
  const { shown, numRunning, numWaiting } = store.steps;
  const found = { running: { max: 0, mean: 0 }, waiting: { max: 0, mean: 0 } };
  let blocked = 0;
  let samples = 0;
  let which = shown[axis.rowAt(first)];
  for (let place = first; place <= last; place += stride) {
    const row = axis.rowAt(place);
    add(found.running, known(numRunning, row));
    add(found.waiting, known(numWaiting, row));
    if (store.shown[shown[row]].blocked) {
      if (!store.shown[which].blocked) which = shown[row];
      blocked += 1;
    }
    samples += 1;
  }
  found.running.mean /= samples;
  found.waiting.mean /= samples;
  return { shown: which, blockedShare: blocked / samples, ...found };
}

function add(to: { max: number; mean: number }, value: number): void {
  to.max = Math.max(to.max, value);
  to.mean += value;
}

/** Zero where the trace does not say: a bar of no length. */
function known(column: Whole, row: Row): number {
  const value = column[row];
  return value === MISSING ? 0 : value;
}

function bar(ink: Ink, column: Column, share: number, y: number, height: number, fill: string): void {
  if (!(share > 0)) return;
  ink.context.fillStyle = fill;
  ink.context.fillRect(column.x + 4, y, Math.max(1, Math.min(share, 1) * (column.width - 10)), height);
}

function outline(ink: Ink, column: Column, share: number, y: number, height: number): void {
  if (!(share > 0) || height < 4) return;
  ink.context.strokeStyle = ink.surface.quiet;
  ink.context.lineWidth = 1;
  ink.context.strokeRect(
    column.x + 4.5,
    y + 0.5,
    Math.max(1, Math.min(share, 1) * (column.width - 10)) - 1,
    height - 1,
  );
}

function reasonCell(ink: Ink, column: Column, store: TraceStore, row: Row, y: number, height: number): void {
  const reason = store.shown[store.steps.shown[row]];
  ink.context.fillStyle = familyFill(ink, reason.family);
  ink.context.fillRect(column.x + 4, y, column.width * REASON_SHARE, height);
}

function tokenBar(ink: Ink, column: Column, store: TraceStore, row: Row, y: number, height: number): void {
  const [used, budget] = [known(store.steps.tokenSum, row), known(store.steps.tokenBudget, row)];
  const share = budget > 0 ? used / budget : 0;
  bar(ink, shifted(column, REASON_SHARE), share, y, height, share >= 0.9 ? ink.surface.hot : ink.surface.bar);
}

/** Segments in the order of the pills: granted, without tokens, preempted, admitted. */
function runningBar(
  ink: Ink,
  column: Column,
  store: TraceStore,
  row: Row,
  y: number,
  height: number,
  full: number,
): void {
  const { numRunning, numNew, numResumed, numPreempted } = store.steps;
  const granted = store.lists.scheduledRunning.counts[row];
  const running = known(numRunning, row);
  const preempted = known(numPreempted, row);
  const idle = granted === MISSING ? 0 : Math.max(running - granted - preempted, 0);
  const parts = [
    ["running", running - idle - preempted],
    ["skipped-run", idle],
    ["preempted", preempted],
    ["new", known(numNew, row)],
    ["resumed", known(numResumed, row)],
  ] as const;
  const unit = (column.width - 10) / full;
  let x = column.x + 4;
  for (const [kind, number] of parts) {
    if (number <= 0) continue;
    const width = Math.min(number * unit, column.x + column.width - 6 - x);
    ink.context.fillStyle = PILLS[kind][ink.theme].fill;
    ink.context.fillRect(x, y, width, height);
    x += width;
  }
  if (height >= 4) outline(ink, column, running / full, y, height);
}

/** Step and time at every so many pixels. */
function labels(
  ink: Ink,
  [step, ts]: readonly Column[],
  store: TraceStore,
  axis: Axis,
  geometry: Geometry,
  first: number,
  last: number,
): void {
  const every = Math.max(1, Math.ceil(LABEL_EVERY / geometry.rowHeight));
  const begin = originOf(store);
  for (let place = Math.ceil(first / every) * every; place <= last; place += every) {
    const row = axis.rowAt(place);
    const y = yOf(geometry, place) + Math.max(geometry.rowHeight / 2, FONT_SIZE / 2 + 1);
    writeRight(ink, store.steps.number[row].toLocaleString("en-US"), step.x + step.width - 8, y, ink.surface.text);
    const elapsed = store.steps.ts[row] - begin;
    if (ts.width > 0 && Number.isFinite(elapsed))
      writeRight(ink, `${elapsed.toFixed(2)} s`, ts.x + ts.width - 8, y, ink.surface.quiet);
  }
}
