import { useMemo, useState } from "preact/hooks";
import { Histogram } from "../charts/Histogram";
import { Plot, type PlotData, type PlotSpec } from "../charts/Plot";
import { PHASES } from "../charts/tones";
import { overTime, rowAtTime } from "../data";
import { baseOf, markText, momentText, originOf } from "../data/clock";
import type { Range, Row } from "../data/model/columns";
import type { OverTime } from "../data/model/overTime";
import type { Spread, Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { count, duration, figureOf, fixed, milliseconds, percent, shortCount } from "../format";
import { SURFACES, type ThemeName } from "../palette";
import { bounds } from "../state/bounds";
import { marks, placed } from "../state/marks";
import { LATENCIES } from "./figures";
import { GoodputForm } from "./GoodputForm";
import { logBins, placeOn } from "./logBins";
import { useComputed } from "./useStatistics";

/** Slices of the clock at most: narrower ones than a step would hold either none of its tokens or all. */
const SLICES = 120;
const HEIGHT = 120;

interface OverTimeProps {
  store: TraceStore;
  range: Range;
  /** Statistics of the range, once they are there. */
  statistics: Statistics | null;
  revision: number;
  theme: ThemeName;
  onRange(range: Range): void;
  onSelectStep(row: Row): void;
}

/** Queues, throughput, goodput, hits and latencies along the clock: drag over one for a range of all. */
export function OverTimeSection(props: OverTimeProps) {
  const { store, range, revision } = props;
  const { ttft, tpot, e2e } = bounds.value;
  const slices = Math.min(SLICES, range.last - range.first + 1);
  const { value: found } = useComputed<OverTime | null>(
    (signal) => overTime(store, range, slices, { ttft, tpot, e2e }, signal),
    [store, revision, range.first, range.last, ttft, tpot, e2e],
    120,
  );
  if (!found) return null;
  const charts: ChartSpec[] = [
    lines("Queues", "requests, mean", [found.running, found.waiting], ["running", "waiting"], (value) =>
      fixed(value, 1),
    ),
    requestsChart(found),
    goodShare(found),
    lines("Output tokens per second", "", [found.tokensPerSecond], ["tokens/s"], count),
    lines("Prefix-cache hits", "share of the prompt tokens", [found.hitRate], ["hit rate"], percent),
    lines("TTFT", "time to first token", [found.ttft.p50, found.ttft.p99], ["p50", "p99"], milliseconds),
    lines("TPOT", "time per output token", [found.tpot.p50, found.tpot.p99], ["p50", "p99"], milliseconds),
    lines("E2E", "arrival to end", [found.e2e.p50, found.e2e.p99], ["p50", "p99"], milliseconds),
  ].filter((chart) => chart.series.some((values) => values.some((value) => !Number.isNaN(value))));
  return (
    <section aria-labelledby="over-time-title">
      <h3 id="over-time-title">Over time</h3>
      <p class="quiet">In slices of {duration(found.seconds)}. Drag for a range, click for a step.</p>
      <GoodputForm found={props.statistics} />
      <div class="columns">
        {charts.map((chart) => (
          <Chart key={chart.title} {...props} chart={chart} at={found.at} />
        ))}
      </div>
    </section>
  );
}

/** Those that ended, and those of them that met every bound. */
function requestsChart({ requestsPerSecond, goodPerSecond, secondsOfRates }: OverTime): ChartSpec {
  const note = `by their end, in slices of ${duration(secondsOfRates)}`;
  const all = requestsPerSecond.some((value) => value > 0) ? [requestsPerSecond] : [];
  return goodPerSecond && all.length > 0
    ? lines("Requests per second", note, [...all, goodPerSecond], ["requests/s", "goodput"], rate)
    : lines("Requests per second", note, all, ["requests/s"], rate);
}

/** Of those that ended in a slice, the share that met every bound. */
function goodShare({ requestsPerSecond, goodPerSecond, secondsOfRates }: OverTime): ChartSpec {
  const shares = goodPerSecond?.map((good, at) => good / (requestsPerSecond[at] || Number.NaN)) ?? [];
  const note = `of the requests that ended, in slices of ${duration(secondsOfRates)}`;
  return lines("Goodput, share", note, [shares], ["met every bound"], percent);
}

/** Of a slice: the less there are, the more digits. */
function rate(value: number): string {
  return value > 0 && value < 10 ? String(Number(value.toPrecision(3))) : shortCount(value);
}

interface ChartSpec {
  title: string;
  note: string;
  series: number[][];
  names: string[];
  text(value: number): string;
}

function lines(
  title: string,
  note: string,
  series: number[][],
  names: string[],
  text: (value: number) => string,
): ChartSpec {
  return { title, note, series, names, text };
}

interface ChartProps extends OverTimeProps {
  chart: ChartSpec;
  at: number[];
}

function Chart({ store, range, theme, chart, at, onRange, onSelectStep }: ChartProps) {
  const [cursor, setCursor] = useState<number | null>(null);
  const data = useMemo(
    () => [at, ...chart.series.map((values) => values.map((value) => (Number.isNaN(value) ? null : value)))],
    [at, chart],
  ) as unknown as PlotData;
  const spec = useMemo(() => plotOf(store, chart, theme), [store, chart.title, chart.names.length, theme]);
  const start = originOf(store);
  const all = marks.value;
  const moments = useMemo(() => placed(all, (ts) => ts - start), [all, start]);
  const row = (seconds: number) => Math.min(Math.max(rowAtTime(store, start + seconds), range.first), range.last);
  const say = (index: number) => {
    const values = chart.series.map((one, which) => {
      const value = one[index];
      return `${chart.names[which]} ${value === undefined || Number.isNaN(value) ? "–" : chart.text(value)}`;
    });
    return `${momentText(store, start + at[index])}: ${values.join(", ")}`;
  };
  return (
    <figure class="occupancy">
      <figcaption>
        <h4>{chart.title}</h4> <span class="quiet">{chart.note}</span>
        {chart.names.length > 1 && (
          <ul class="keys">
            {chart.names.map((name, which) => (
              <li key={name}>
                <span class={which ? "line-b" : "line-a"} aria-hidden="true" /> {name}
              </li>
            ))}
          </ul>
        )}
        <output class="number">{cursor === null || cursor >= at.length ? "" : say(cursor)}</output>
      </figcaption>
      <Plot
        spec={spec}
        data={data}
        marks={moments}
        sync={`over-time-${store.key}`}
        describe={say}
        onCursor={setCursor}
        onBrush={(from, to) => onRange({ first: row(from), last: row(to) })}
        onPick={(x) => onSelectStep(row(x))}
      />
    </figure>
  );
}

function plotOf(store: TraceStore, chart: ChartSpec, theme: ThemeName): PlotSpec {
  const surface = SURFACES[theme];
  const strokes = [{ stroke: surface.text }, { stroke: surface.accent, dash: [6, 4] }];
  const seconds = chart.text === milliseconds;
  const perSecond = chart.text === rate;
  return {
    label: `${chart.title} over time`,
    height: HEIGHT,
    curves: strokes.slice(0, chart.names.length),
    xText: (seconds) => markText(store, originOf(store) + seconds),
    yText: (y) =>
      seconds ? short(y) : chart.text === percent ? `${Math.round(100 * y)} %` : (perSecond ? rate : shortCount)(y),
    yTop: seconds || perSecond ? 1e-6 : 1,
    base: baseOf(store),
    theme,
  };
}

interface LatenciesProps {
  found: Statistics;
  theme: ThemeName;
  /** Show some requests in the order of a column of their table. */
  onRequests(filter: string, sorting: string): void;
}

/** How many requests took how long, on a scale that grows: the long tail is where users wait. */
export function LatencySection({ found, theme, onRequests }: LatenciesProps) {
  const shown = LATENCIES.filter(({ key }) => found.times[key].some((value) => value > 0));
  if (shown.length === 0) return null;
  return (
    <section aria-labelledby="latency-title">
      <h3 id="latency-title">How long requests took</h3>
      <p class="quiet">
        Requests of these steps, on a scale that grows by 1, 2, 5, 10. A click on a bar shows its requests.
      </p>
      <div class="columns">
        {shown.map(({ key, title, meaning, spread }) => (
          <Latency
            {...{ key, title, meaning }}
            values={found.times[key]}
            spread={found[spread]}
            theme={theme}
            onClick={(from, to) => onRequests(`${key}:${from * 1e3}ms..${to * 1e3}ms`, `-${key}`)}
          />
        ))}
      </div>
    </section>
  );
}

interface LatencyProps {
  title: string;
  meaning: string;
  values: number[];
  spread: Spread | null;
  theme: ThemeName;
  onClick(from: number, to: number): void;
}

function Latency({ title, meaning, values, spread, theme, onClick }: LatencyProps) {
  const bins = useMemo(() => logBins(values), [values]);
  if (!bins) return null;
  const { edges, counts } = bins;
  const every = Math.ceil(edges.length / 7);
  return (
    <div>
      <h4>
        {title} <span class="quiet">{meaning}</span>
      </h4>
      <Histogram
        label={`Requests by ${title}`}
        unit="requests"
        bins={counts.map((value, bin) => ({
          label: `${bin === 0 ? "0" : milliseconds(edges[bin])}–${milliseconds(edges[bin + 1])}`,
          value,
          onClick: () => onClick(bin === 0 ? 0 : edges[bin], edges[bin + 1]),
        }))}
        scales={[
          {
            name: title,
            ticks: edges
              .map((edge, at) => ({ at: at / (edges.length - 1), text: short(edge) }))
              .filter((_, at) => at % every === 0),
          },
        ]}
        fill={PHASES.decode[theme].fill}
        mean={spread && { at: placeOn(bins, spread.p99), text: `p99 ${figureOf(spread, "p99")}` }}
      />
    </div>
  );
}

/** `20 ms`, `5 s`: edges are round. */
function short(seconds: number): string {
  if (seconds === 0) return "0";
  const [value, unit] = seconds < 0.9995 ? [seconds * 1_000, "ms"] : [seconds, "s"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}
