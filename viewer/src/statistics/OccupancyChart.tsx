import { useMemo, useState } from "preact/hooks";
import { Plot, type PlotData, type PlotSpec } from "../charts/Plot";
import { hatched } from "../charts/patterns";
import { FREE, lookStyle, PHASES, PINNED } from "../charts/tones";
import { rowAtTime } from "../data";
import { baseOf, markText, momentText, originOf } from "../data/clock";
import type { Range, Row } from "../data/model/columns";
import type { LevelsOfDetail } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";
import { largest } from "../data/spread";
import { count, percent, shortCount } from "../format";
import { SURFACES, type ThemeName } from "../palette";
import { axisKind } from "../state/axis";
import { marks, placed } from "../state/marks";
import { type Occupancy, occupancy, type Pool, stacked } from "./occupancy";
import "./statistics.css";

const POINTS = 700;
const HEIGHT = 190;

const NAMES: Record<Pool, { title: string; active: string }> = {
  vram: { title: "VRAM: KV blocks on the GPU", active: "active" },
  dram: { title: "DRAM: blocks of the CPU offload tier", active: "used" },
};

interface OccupancyChartProps {
  store: TraceStore;
  levels: LevelsOfDetail | null;
  range: Range;
  pool: Pool;
  theme: ThemeName;
  onRange(range: Range): void;
  onSelectStep(row: Row): void;
}

/** Blocks over the steps, stacked; nothing at all where the trace knows no such pool. */
export function OccupancyChart({ store, levels, range, pool, theme, onRange, onSelectStep }: OccupancyChartProps) {
  const [at, setAt] = useState<number | null>(null);
  const found = useMemo(
    () => occupancy(store, levels, range, pool, POINTS),
    [store, store.version, levels, range.first, range.last, pool],
  );
  const byTime = axisKind.value === "time";
  const places = useMemo(() => found?.rows.map((row) => (byTime ? secondsAt(store, row) : row)) ?? [], [found, byTime]);
  const data = useMemo(() => (found ? ([places, ...stacked(found)] as PlotData) : null), [found, places]);
  const spec = useMemo(
    () => (found ? chart(store, pool, found.total, theme, byTime) : null),
    [store, pool, found?.total, theme, byTime],
  );
  const rowOf = (place: number) => (byTime ? rowAtTime(store, originOf(store) + place) : Math.round(place));
  const all = marks.value;
  const moments = useMemo(
    () => placed(all, (ts) => (byTime ? ts - originOf(store) : rowAtTime(store, ts))),
    [all, store, byTime],
  );
  if (!found || !data || !spec) return null;
  const step = (row: number) => count(store.steps.number[row]);
  const when = (row: number) => (byTime ? `, ${momentText(store, store.steps.ts[row])}` : "");
  const describe = (index: number) =>
    `step ${step(found.rows[index])}${when(found.rows[index])}: ${words(found, pool, index)}`;
  return (
    <figure class="occupancy">
      <figcaption>
        <h4>{NAMES[pool].title}</h4>
        <Legend pool={pool} theme={theme} />
        <output class="number">{at === null || at >= found.rows.length ? summary(found) : describe(at)}</output>
      </figcaption>
      <Plot
        spec={spec}
        data={data}
        marks={moments}
        sync={`occupancy-${store.key}`}
        describe={describe}
        onCursor={setAt}
        onBrush={(from, to) => onRange(between(rowOf(from), rowOf(to), range))}
        onPick={(place) => onSelectStep(rowOf(place))}
      />
    </figure>
  );
}

function secondsAt(store: TraceStore, row: Row): number {
  return store.steps.ts[row] - originOf(store);
}

function chart(store: TraceStore, pool: Pool, total: number, theme: ThemeName, byTime: boolean): PlotSpec {
  const active = PHASES.decode[theme];
  const pinned = PINNED[theme];
  const surface = SURFACES[theme];
  return {
    label: `${NAMES[pool].title}, stacked over ${byTime ? "time" : "the steps"}`,
    height: HEIGHT,
    curves: [
      { fill: () => active.fill },
      { fill: () => hatched(pinned, PINNED.hatch) },
      { fill: () => FREE[theme].fill },
      { stroke: surface.text },
    ],
    xText: byTime ? (seconds) => markText(store, originOf(store) + seconds) : (row) => count(store.steps.number[row]),
    ...(byTime ? { base: baseOf(store) } : {}),
    yText: shortCount,
    yTop: total,
    theme,
  };
}

function between(from: number, to: number, range: Range): Range {
  return {
    first: Math.max(from, range.first),
    last: Math.min(to, range.last),
  };
}

function words(found: Occupancy, pool: Pool, index: number): string {
  const active = found.active[index];
  if (Number.isNaN(active)) return "not recorded";
  const pinned = found.pinned[index] ? ` · ${count(found.pinned[index])} pinned` : "";
  return `${count(active)} ${NAMES[pool].active}${pinned} · ${count(found.free[index])} free of ${count(found.total)}`;
}

function summary(found: Occupancy): string {
  const peak = largest(found.peak);
  return `${count(found.total)} blocks, at most ${count(peak)} in use (${percent(peak / found.total)})`;
}

function Legend({ pool, theme }: { pool: Pool; theme: ThemeName }) {
  const parts = [
    { look: PHASES.decode, words: NAMES[pool].active },
    ...(pool === "vram" ? [{ look: PINNED, words: PINNED.words }] : []),
    { look: FREE, words: FREE.words },
  ];
  return (
    <ul class="keys">
      {parts.map(({ look, words }) => (
        <li key={words}>
          <span class="key" style={lookStyle(look, theme)} aria-hidden="true" /> {words}
        </li>
      ))}
      <li>
        <span class="key-line" aria-hidden="true" /> most in use
      </li>
    </ul>
  );
}
