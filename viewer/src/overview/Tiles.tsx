import { goodput } from "../data";
import type { Goodput } from "../data/model/slo";
import type { Outcomes, Spread, Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { count, figureOf, fixed, outcomesText, percent } from "../format";
import { SURFACES, type ThemeName } from "../palette";
import { bounds, boundsText } from "../state/bounds";
import { showTab } from "../state/moves";
import { setExtra } from "../state/store";
import type { Found } from "./OverviewView";
import { cutShort, ERRORS, showRequests } from "./requests";

interface TilesProps {
  store: TraceStore;
  found: Found;
  /** Of the second trace, if there is one. */
  against: Statistics | null;
  theme: ThemeName;
}

interface Tile {
  name: string;
  meaning: string;
  value: string;
  /** Beside the value: `p50 1.2 s`. */
  beside: string;
  wrong?: boolean;
  line: readonly number[];
  /** The number behind the value, and that of the second trace. */
  now: number | null;
  before: number | null;
  lessIsBetter: boolean;
  onClick?(): void;
}

/** p99 and errors first: what an alarm is about. */
export function Tiles({ found, against, theme }: TilesProps) {
  const { statistics } = found;
  return (
    <ul class="tiles" aria-label="Figures">
      {tilesOf(found, statistics, against).map((tile) => (
        <li key={tile.name} class={tile.wrong ? "tile wrong-tile" : "tile"} title={tile.meaning}>
          <button type="button" disabled={!tile.onClick} onClick={tile.onClick}>
            <span class="tile-name">{tile.name}</span>
            <span class="tile-value">{tile.value}</span>
            <span class="tile-beside">
              {tile.beside} <Change tile={tile} />
            </span>
            <Spark values={tile.line} color={tile.wrong ? SURFACES[theme].hot : SURFACES[theme].accent} />
          </button>
        </li>
      ))}
    </ul>
  );
}

const NONE: readonly number[] = [];

/** A lower bound is not compared. */
function exact(spread: Spread | null): number | null {
  return spread && !spread.atLeast?.includes("p99") ? spread.p99 : null;
}

function hit(some: Statistics | null): number | null {
  const hits = some?.prefixHits;
  return hits?.promptTokens ? (hits.localTokens + hits.externalTokens) / hits.promptTokens : null;
}

function shareCut(some: Statistics | null): number | null {
  return some?.outcomes.arrived ? cutShort(some.outcomes) / some.outcomes.arrived : null;
}

/** `3.2 % of 120, 20 unfinished`. */
function ofAll({ arrived, unfinished, ...others }: Outcomes): string {
  const open = unfinished > 0 ? `, ${count(unfinished)} unfinished` : "";
  return `${percent(cutShort(others) / arrived)} of ${count(arrived)}${open}`;
}

function tilesOf({ sparks }: Found, now: Statistics | null, before: Statistics | null): Tile[] {
  const latency = (
    name: string,
    meaning: string,
    key: string,
    of: (some: Statistics) => Spread | null,
    line: readonly number[],
  ): Tile => {
    const spread = now && of(now);
    return {
      ...{ name: `${name} p99`, meaning: `${meaning}; the line is p99 over time`, line },
      value: figureOf(spread, "p99", key !== "" && now !== null && now.outcomes.refused > 0),
      beside: spread ? `p50 ${figureOf(spread, "p50")}${spread.count ? ` of ${count(spread.count)}` : ""}` : "",
      ...{ now: exact(spread), before: exact(before && of(before)), lessIsBetter: true },
      ...(spread && key ? { onClick: () => showSorted(`-${key}`) } : {}),
    };
  };
  const aborted = now ? cutShort(now.outcomes) : 0;
  const good = (some: Statistics | null) => (some ? goodput(some, bounds.value) : null);
  const met = good(now);
  const tiles: Tile[] = [
    latency("TTFT", "arrival to first token", "ttft", (some) => some.ttftSeconds, sparks?.ttft.p99 ?? NONE),
    latency("TPOT", "per token after the first", "tpot", (some) => some.tpotSeconds, sparks?.tpot.p99 ?? NONE),
    latency("ITL", "between two tokens of an answer", "", (some) => some.itlSeconds, NONE),
    latency("E2E", "arrival to end", "e2e", (some) => some.e2eSeconds, sparks?.e2e.p99 ?? NONE),
    {
      name: "Errors",
      meaning: outcomesText(now?.outcomes),
      value: now ? count(aborted) : "–",
      beside: now ? ofAll(now.outcomes) : "",
      wrong: aborted > 0,
      line: aborted > 0 ? (sparks?.cutShort ?? NONE) : NONE,
      ...{ now: shareCut(now), before: shareCut(before), lessIsBetter: true },
      ...(aborted > 0 ? { onClick: () => showRequests(ERRORS) } : {}),
    },
    {
      name: "Goodput",
      meaning: met ? `requests within ${boundsText(bounds.value)}` : "bound a latency under Statistics to count it",
      value: met ? percent(met.share) : "–",
      beside: goodBeside(met),
      line: met ? (sparks?.goodPerSecond ?? NONE) : NONE,
      ...{ now: met?.share ?? null, before: good(before)?.share ?? null, lessIsBetter: false },
      onClick: () => showTab("statistics"),
    },
    {
      name: "Cache hits",
      meaning: "share of the prompt tokens that were found in a cache",
      value: percent(hit(now)),
      beside: now?.prefixHits.lookups ? `${count(now.prefixHits.lookups)} prompts` : "",
      line: sparks?.hitRate ?? NONE,
      ...{ now: hit(now), before: hit(before), lessIsBetter: false },
    },
    {
      name: "Preemptions",
      meaning: "how often a running request lost its blocks, and tokens computed again for it",
      value: count(now?.preemptions),
      beside: now?.recomputedTokens ? `${count(now.recomputedTokens)} tokens again` : "",
      wrong: (now?.preemptions ?? 0) > 0,
      line: NONE,
      ...{ now: now?.preemptions ?? null, before: before?.preemptions ?? null, lessIsBetter: true },
      ...(now?.preemptions ? { onClick: () => showSorted("-preemptions") } : {}),
    },
  ];
  return tiles;
}

function goodBeside(met: Goodput | null): string {
  if (!met) return "set bounds";
  const rate = met.requestsPerSecond ? `${fixed(met.requestsPerSecond, 2)} requests/s` : "";
  return met.open ? `${rate}${rate && ", "}${count(met.open)} more may be` : rate;
}

function showSorted(sorting: string): void {
  setExtra("show", "table");
  setExtra("sort", sorting);
  showTab("requests");
}

/** Against the second trace. */
function Change({ tile: { now, before, lessIsBetter } }: { tile: Tile }) {
  if (now === null || before === null || before === 0) return null;
  const share = (now - before) / before;
  if (Math.abs(share) < 0.005) return <span class="quiet">= B</span>;
  const better = share < 0 === lessIsBetter;
  return (
    <span class={better ? "change-better" : "change-worse"} title="against the second trace">
      {share > 0 ? "+" : "−"}
      {fixed(100 * Math.abs(share), 0)} % to B
    </span>
  );
}

const WIDTH = 100;
const HEIGHT = 20;

function Spark({ values, color }: { values: readonly number[]; color: string }) {
  const most = values.reduce((one, other) => (other > one ? other : one), 0);
  if (!(most > 0) || values.length < 2) return <svg class="spark" aria-hidden="true" />;
  let path = "";
  values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const [x, y] = [(at / (values.length - 1)) * WIDTH, HEIGHT - 1 - (value / most) * (HEIGHT - 2)];
    path += `${path === "" ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path d={path} fill="none" stroke={color} stroke-width="1.5" vector-effect="non-scaling-stroke" />
    </svg>
  );
}
