/** Runs the filter whenever it, or the trace, changes; the last one requested wins. */

import { effect } from "@preact/signals";
import { findMatches } from "./matching";
import { filter, matches, matching, revision, trace } from "./store";

/** Milliseconds without a key before a long trace is searched. */
const QUIET_MS = 120;

export function startFiltering(): void {
  let running: AbortController | null = null;
  let timer = 0;
  effect(() => {
    revision.value;
    const store = trace.value;
    const wanted = filter.value;
    running?.abort();
    clearTimeout(timer);
    if (!store || wanted.terms.length === 0) {
      matching.value = false;
      if (matches.peek().rows) matches.value = { rows: null, requests: null };
      return;
    }
    const own = new AbortController();
    running = own;
    matching.value = true;
    timer = window.setTimeout(async () => {
      try {
        const found = await findMatches(store, wanted, own.signal);
        if (own.signal.aborted) return;
        matches.value = found;
        matching.value = false;
      } catch (error) {
        if (!own.signal.aborted) throw error;
      }
    }, QUIET_MS);
  });
}
