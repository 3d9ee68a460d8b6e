import { Histogram, type Tick } from "../charts/Histogram";
import { HITS, lookStyle, PHASES } from "../charts/tones";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { count, percent, plural, shortCount } from "../format";
import type { ThemeName } from "../palette";
import { shares, within } from "./filters";

interface HistogramsProps {
  store: TraceStore;
  found: Statistics;
  theme: ThemeName;
  onFilter(text: string): void;
}

const PERCENTS: Tick[] = [0, 20, 40, 60, 80, 100].map((at) => ({ at: at / 100, text: `${at} %` }));

/** How much of the prompts was found in a cache, and how full the steps were. */
export function HistogramsSection(props: HistogramsProps) {
  return (
    <div class="columns">
      <PrefixHits {...props} />
      <TokenBudget {...props} />
    </div>
  );
}

function PrefixHits({ store, found, theme, onFilter }: HistogramsProps) {
  const hits = found.prefixHits;
  const scope = within(store, found.range);
  const bins = hits.counts.map((value, bin) => ({
    label: range(bin, hits.counts.length),
    value,
    parts: split(hits.localByBin[bin], hits.externalByBin[bin], theme),
    onClick: () => onFilter(shares("hit", bin, hits.counts.length) + scope),
  }));
  return (
    <section aria-labelledby="hits-title">
      <h3 id="hits-title">Prefix-cache hits</h3>
      {hits.lookups === 0 ? (
        <p class="quiet">No prefix_cache_lookup in these steps: no request was scheduled for the first time.</p>
      ) : (
        <>
          <p class="quiet">
            {plural(hits.lookups, "request")} by the share of the prompt that was found
            {store.connector ? ` (connector: ${store.connector})` : ""}.
          </p>
          <ul class="keys">
            <li>
              <span class="key" style={lookStyle(HITS.local, theme)} aria-hidden="true" /> local{" "}
              <span class="number">{share(hits.localTokens, hits.promptTokens)}</span>
            </li>
            <li>
              <span class="key" style={lookStyle(HITS.external, theme)} aria-hidden="true" /> external{" "}
              <span class="number">{share(hits.externalTokens, hits.promptTokens)}</span>
            </li>
            <li>
              <span class="key" style={NOTHING} aria-hidden="true" /> nothing found
            </li>
            <li class="quiet">of {count(hits.promptTokens)} prompt tokens</li>
          </ul>
          <Histogram
            label="Requests by the share of the prompt that was found in a cache"
            unit="requests"
            bins={bins}
            scales={[{ name: "share of the prompt", ticks: PERCENTS }]}
            mean={hits.mean === null ? null : { at: hits.mean, text: `mean ${percent(hits.mean)}` }}
          />
        </>
      )}
    </section>
  );
}

const NOTHING = { backgroundColor: "var(--family-unknown)" };

function split(local: number, external: number, theme: ThemeName) {
  const tokens = local + external;
  if (tokens === 0) return [{ name: "nothing found", style: NOTHING, share: 1 }];
  return [
    { name: "local", style: lookStyle(HITS.local, theme), share: local / tokens },
    { name: "external", style: lookStyle(HITS.external, theme), share: external / tokens },
  ];
}

function share(tokens: number, all: number): string {
  return percent(all ? tokens / all : null);
}

function TokenBudget({ store, found, theme, onFilter }: HistogramsProps) {
  const use = found.tokenBudget;
  const scope = within(store, found.range);
  const bins = use.counts.map((value, bin) => ({
    label: range(bin, use.counts.length),
    value,
    onClick: () => onFilter(shares("budget", bin, use.counts.length) + scope),
  }));
  const scales = [{ name: "share of the budget", ticks: PERCENTS }];
  const { budget } = use;
  if (budget !== null) {
    scales.push({ name: "tokens", ticks: PERCENTS.map(({ at }) => ({ at, text: tokens(at * budget, at === 1) })) });
  }
  return (
    <section aria-labelledby="budget-title">
      <h3 id="budget-title">Token budget used</h3>
      {use.mean === null ? (
        <p class="quiet">These steps do not say how many tokens they were allowed.</p>
      ) : (
        <>
          <p class="quiet">Steps by tokens scheduled over the budget{budget === null ? "" : ` of ${count(budget)}`}.</p>
          <Histogram
            label="Steps by the share of the token budget that they used"
            unit="steps"
            bins={bins}
            scales={scales}
            fill={PHASES.decode[theme].fill}
            mean={{
              at: Math.min(use.mean, 1),
              text: `mean ${percent(use.mean)}${budget === null ? "" : ` (${tokens(use.mean * budget)})`}`,
            }}
          />
        </>
      )}
    </section>
  );
}

/** `1.6kt`, as the format's description writes it; a whole budget exactly: `8192t`. */
function tokens(value: number, exact = false): string {
  return value < 1000 || exact ? `${Math.round(value)}t` : `${shortCount(value).replace("K", "k")}t`;
}

function range(bin: number, bins: number): string {
  return `${Math.round((100 * bin) / bins)}–${Math.round((100 * (bin + 1)) / bins)} %`;
}
