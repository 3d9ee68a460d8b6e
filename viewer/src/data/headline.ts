/** The headline figures of a run. */

import { count } from "./labels";
import type { Spread, Statistics } from "./model/statistics";
import type { TraceStore } from "./model/trace";

/** The figures that document 000 names, ready to be pasted. */
export function headline(store: TraceStore, found: Statistics): { label: string; value: string }[] {
  const percent = (share: number | null) => (share === null ? "-" : `${(100 * share).toFixed(1)} %`);
  const three = (some: Spread | null) =>
    some ? `${some.mean.toFixed(1)} / ${Math.round(some.p50)} / ${Math.round(some.p95)}` : "-";
  const { prefixHits } = found;
  const rate = (tokens: number) => (prefixHits.promptTokens ? tokens / prefixHits.promptTokens : null);
  const lines = [
    { label: "Total steps", value: count(found.steps) },
    { label: "Running mean/p50/p95", value: three(found.running) },
    { label: "Waiting mean/p50/p95", value: three(found.waiting) },
    { label: "Peak KV usage", value: percent(found.peakKvUse) },
    { label: "Preemptions", value: count(found.preemptions) },
    { label: "Prefix hit rate, local", value: percent(rate(prefixHits.localTokens)) },
  ];
  if (store.connector !== null || prefixHits.externalTokens > 0) {
    lines.push({ label: "Prefix hit rate, connector", value: percent(rate(prefixHits.externalTokens)) });
  }
  return lines;
}
