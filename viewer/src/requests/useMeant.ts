/** The requests that the filter means, in views of requests. */

import { useMemo } from "preact/hooks";
import type { Range } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { lostMask } from "../state/matching";
import { filter, matches, revision } from "../state/store";
import { useComputed } from "../statistics/useStatistics";

/** 1 for each that passes: `job:`, `req:` and its times as everywhere, `reason:` if it lost time to it in `part`. Null for all. */
export function useMeant(store: TraceStore, part: Range | null): Uint8Array | null {
  const wanted = filter.value;
  const { requests } = matches.value;
  const lost = useComputed(
    (signal) => lostMask(store, wanted, signal, part),
    [store, revision.value, wanted, part?.first, part?.last],
    120,
  ).value;
  return useMemo(
    () => (requests && lost ? requests.map((meant, at) => meant & lost[at]) : (requests ?? lost)),
    [requests, lost],
  );
}
