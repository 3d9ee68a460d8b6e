/** How the run went, along its clock: whom each reason held back, and what ran, in slices. */

import { hasTimes, originOf } from "./clock";
import { endOfRow } from "./lives";
import { MISSING, type Range, type RequestIndex, type Row } from "./model/columns";
import type { Pressure, Stretch, TokenTrack } from "./model/pressure";
import type { TraceStore } from "./model/trace";
import { eachHeld } from "./shares";
import { inSlices } from "./slices";
import { rowAtTime } from "./store";

/**
 * The whole of `range`, in slices of equal length; null if the trace has no times, unless `byRows` lets every row count
 * as a second then.
 */
export async function pressure(
  store: TraceStore,
  range: Range,
  slices: number,
  signal?: AbortSignal,
  byRows = false,
): Promise<Pressure | null> {
  const { steps } = store;
  const rowsAsClock = byRows && !hasTimes(store);
  const beginOf = (row: Row) => (rowsAsClock ? row : steps.ts[row]);
  const endOf = (row: Row) => (rowsAsClock ? row + 1 : endOfRow(store, row));
  const from = beginOf(range.first);
  const width = (endOf(range.last) - from) / slices;
  if (!(width > 0)) return null;
  const column = () => new Float64Array(slices);
  const held = new Map<number, { sum: Float64Array; most: Float64Array }>();
  const sums = { running: column(), waiting: column(), kv: column(), tokens: column(), known: column() };
  const most = column();
  const mostRunning = column();
  const mostKv = column();
  await inSlices(
    range.first,
    range.last,
    (row) => {
      const [begin, end] = [beginOf(row), endOf(row)];
      if (!(end > begin)) return;
      const parts = heldBack(store, row);
      const total = parts.reduce((sum, [, requests]) => sum + requests, 0);
      const use = steps.totalBlocks[row] > 0 && steps.freeBlocks[row] !== MISSING;
      const first = Math.max(Math.floor((begin - from) / width), 0);
      const last = Math.min(Math.floor((end - from) / width), slices - 1);
      for (let slice = first; slice <= last; slice++) {
        const seconds = Math.min(end, from + (slice + 1) * width) - Math.max(begin, from + slice * width);
        if (!(seconds > 0)) continue;
        for (const [shown, requests] of parts) {
          let series = held.get(shown);
          if (!series) {
            series = { sum: column(), most: column() };
            held.set(shown, series);
          }
          series.sum[slice] += requests * seconds;
          raise(series.most, slice, requests);
        }
        raise(most, slice, total);
        raise(mostRunning, slice, steps.numRunning[row]);
        sums.known[slice] += seconds;
        sums.running[slice] += Math.max(steps.numRunning[row], 0) * seconds;
        sums.waiting[slice] += Math.max(steps.numWaiting[row], 0) * seconds;
        if (use) {
          const share = 1 - steps.freeBlocks[row] / steps.totalBlocks[row];
          sums.kv[slice] += share * seconds;
          raise(mostKv, slice, share);
        }
        sums.tokens[slice] += (Math.max(steps.tokenSum[row], 0) * seconds) / (end - begin);
      }
    },
    signal,
  );
  const mean = (series: Float64Array, per: (slice: number) => number) => series.map((sum, slice) => sum / per(slice));
  const known = (slice: number) => sums.known[slice] || Number.NaN;
  const reasons = [...held].map(([shown, series]) => ({
    shown,
    lost: series.sum.reduce((sum, seconds) => sum + seconds, 0),
    held: mean(series.sum, () => width),
    most: series.most,
  }));
  return {
    ...{ from, width, slices, origin: rowsAsClock ? 0 : originOf(store) },
    reasons: reasons.filter(({ lost }) => lost > 0).sort((a, b) => b.lost - a.lost),
    ...{ most, mostRunning, mostKv },
    running: mean(sums.running, known),
    waiting: mean(sums.waiting, known),
    kv: mean(sums.kv, known),
    tokensPerSecond: mean(sums.tokens, () => width),
  };
}

function raise(series: Float64Array, slice: number, value: number): void {
  if (value > series[slice]) series[slice] = value;
}

/** The requests that got most tokens in `range`, each slice by slice as `found` has them; the rest is left out. */
export async function takersOverTime(
  store: TraceStore,
  range: Range,
  found: Pressure,
  most: number,
  signal?: AbortSignal,
): Promise<TokenTrack[]> {
  const { scheduled } = store.lists;
  const totals = new Float64Array(store.requests.count);
  const each = (row: Row, take: (request: RequestIndex, tokens: number) => void) => {
    const end = scheduled.starts[row] + Math.max(scheduled.counts[row], 0);
    for (let at = scheduled.starts[row]; at < end; at++) take(scheduled.ids[at], scheduled.tokens[at]);
  };
  const add = (request: RequestIndex, tokens: number) => {
    totals[request] += tokens;
  };
  await inSlices(range.first, range.last, (row) => each(row, add), signal);
  const ranked = [...totals.keys()].filter((request) => totals[request] > 0).sort((a, b) => totals[b] - totals[a]);
  const tracks = ranked.slice(0, most).map((request): TokenTrack => {
    return { request, tokens: totals[request], perSecond: new Float64Array(found.slices) };
  });
  const byRequest = new Map(tracks.map((track) => [track.request, track.perSecond]));
  const timed = hasTimes(store);
  await inSlices(
    range.first,
    range.last,
    (row) => {
      const [begin, end] = timed ? [store.steps.ts[row], endOfRow(store, row)] : [row, row + 1];
      const first = Math.max(Math.floor((begin - found.from) / found.width), 0);
      const last = Math.min(Math.floor((end - found.from) / found.width), found.slices - 1);
      each(row, (request, tokens) => {
        const perSecond = byRequest.get(request);
        if (!perSecond || !(end > begin)) return;
        for (let slice = first; slice <= last; slice++) {
          const [left, right] = [found.from + slice * found.width, found.from + (slice + 1) * found.width];
          const within = Math.max(Math.min(end, right) - Math.max(begin, left), 0);
          perSecond[slice] += (tokens * within) / (end - begin) / found.width;
        }
      });
    },
    signal,
  );
  return tracks;
}

/** Index into `shown`, and how many requests: as recorded, else as the classifier concludes. */
export function heldBack(store: TraceStore, row: Row): [number, number][] {
  const { shown, unadmitted } = store.steps;
  const found: [number, number][] = [];
  const offset = offsetOf(store);
  eachHeld(store, row, (reason, requests) => {
    if (requests > 0 && offset + reason < store.shown.length) found.push([offset + reason, requests]);
  });
  const { blocked, recorded } = store.shown[shown[row]];
  if (found.length === 0 && blocked && !recorded && unadmitted[row] > 0) found.push([shown[row], unadmitted[row]]);
  return found;
}

/** Where the recorded reasons begin among all that are shown. */
function offsetOf({ shown, reasonNames }: TraceStore): number {
  return shown.length - Math.min(reasonNames.length, shown.length);
}

/** Stretches whose slices hold back at least this share of what the worst does belong together. */
const HALF = 0.5;
/** Slices between two that are still one. */
export const GAP = 2;

/** Where most time was lost: the worst first. */
export function stretches(found: Pressure, most: number): Stretch[] {
  const total = new Float64Array(found.slices);
  for (const { held } of found.reasons) for (let slice = 0; slice < found.slices; slice++) total[slice] += held[slice];
  const peak = total.reduce((one, other) => Math.max(one, other), 0);
  if (!(peak > 0)) return [];
  const runs: [number, number][] = [];
  for (let slice = 0; slice < found.slices; slice++) {
    if (total[slice] < HALF * peak && !(runs.length === 0 && total[slice] === peak)) continue;
    const last = runs.at(-1);
    if (last && slice - last[1] <= GAP + 1) last[1] = slice;
    else runs.push([slice, slice]);
  }
  const end = found.slices - 1; // a stretch that was selected fills its range, whatever the slices at its edges hold
  const rated = runs.map(([first, last]) =>
    stretchOf(found, first <= GAP ? 0 : first, end - last <= GAP ? end : last, []),
  );
  return rated.sort((a, b) => b.lost - a.lost).slice(0, most);
}

/** `more`: what requests lost beside the slices, by reason. */
function stretchOf(found: Pressure, first: number, last: number, more: readonly [number, number][]): Stretch {
  const most = (series: Float64Array) =>
    series.subarray(first, last + 1).reduce((one, other) => Math.max(one, other), 0);
  const parts = found.reasons.map((reason) => ({
    shown: reason.shown,
    lost: more.reduce(
      (sum, [shown, seconds]) => sum + (shown === reason.shown ? seconds : 0),
      reason.held.subarray(first, last + 1).reduce((sum, requests) => sum + requests * found.width, 0),
    ),
  }));
  const [main] = parts.sort((a, b) => b.lost - a.lost);
  const lost = parts.reduce((sum, part) => sum + part.lost, 0);
  return {
    ...{ first, last, lost, most: most(found.most), shown: main.shown, share: lost > 0 ? main.lost / lost : 0 },
    begin: found.from + first * found.width,
    end: found.from + (last + 1) * found.width,
  };
}

/** The rows of a stretch. */
export function rowsOf(store: TraceStore, { begin, end }: Pick<Stretch, "begin" | "end">): Range {
  const first = rowAtTime(store, begin);
  const last = rowAtTime(store, end);
  return { first, last: Math.max(store.steps.ts[last] < end ? last : last - 1, first) };
}

/** The stretch of whole rows: selected, it has the same figures. */
export function ofRows(store: TraceStore, found: Pressure, stretch: Stretch): Stretch {
  const rows = rowsOf(store, stretch);
  const [begin, end] = [store.steps.ts[rows.first], endOfRow(store, rows.last)];
  const beside = (row: Row, seconds: number) =>
    heldBack(store, row).map(([shown, requests]): [number, number] => [shown, requests * seconds]);
  const more = [...beside(rows.first, stretch.begin - begin), ...beside(rows.last, end - stretch.end)];
  return { ...stretchOf(found, stretch.first, stretch.last, more), begin, end };
}
