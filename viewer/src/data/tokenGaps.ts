/**
 * Inter-token latency: the gaps between the steps that brought an answer's tokens. As src/tokenyard/explain/figures.py
 * counts them: of an answer that got a token in every sampling step between its first and its last; others are left out.
 */

import { MISSING, type Range } from "./model/columns";
import type { Spread } from "./model/statistics";
import type { TraceStore } from "./model/trace";
import { weightedSpread } from "./spread";

/** Steps of the range, and requests that ended in it; null where none is known. */
export function tokenGaps(store: TraceStore, range: Range): Spread | null {
  const { steps, requests } = store;
  const moments: number[] = [];
  for (let row = range.first; row <= range.last; row++) {
    const sampled = steps.sampledTokens[row];
    if (sampled !== MISSING && sampled > 0 && !Number.isNaN(steps.completedTs[row]))
      moments.push(steps.completedTs[row]);
  }
  if (moments.length < 2) return null;
  // Answers that go on at each gap, as differences from the gap before.
  const changes = new Int32Array(moments.length + 1);
  let known = 0;
  for (let request = 0; request < requests.count; request++) {
    const tokens = requests.outputTokens[request];
    const [first, last] = [requests.firstTokenTime[request], requests.finishedTime[request]];
    const ended = requests.finishedRow[request];
    if (!(tokens > 1) || ended < range.first || ended > range.last || Number.isNaN(first) || Number.isNaN(last))
      continue;
    const [from, to] = [nearest(moments, first), nearest(moments, last)];
    if (to - from !== tokens - 1) continue;
    changes[from] += 1;
    changes[to] -= 1;
    known += 1;
  }
  if (known === 0) return null;
  const gaps = new Float64Array(moments.length - 1);
  const counts = new Float64Array(moments.length - 1);
  let open = 0;
  for (let at = 0; at < gaps.length; at++) {
    open += changes[at];
    gaps[at] = moments[at + 1] - moments[at];
    counts[at] = open;
  }
  return weightedSpread(gaps, counts);
}

/** The moment nearest to one: an engine notes a token's time a little apart from its step's end. */
function nearest(moments: readonly number[], moment: number): number {
  let low = 0;
  let high = moments.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (moments[middle] < moment) low = middle + 1;
    else high = middle;
  }
  const after = Math.min(Math.max(low, 1), moments.length - 1);
  return moment - moments[after - 1] < moments[after] - moment ? after - 1 : after;
}
