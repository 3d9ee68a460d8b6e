/** The bounds that goodput is counted by, and which requests their table shows: kept in the address. */

import { computed } from "@preact/signals";
import type { Bounds } from "../data/model/slo";
import { extra } from "./store";

/** What is bounded, and the key under which its bound is kept, in milliseconds: `slo-ttft=500`. */
export const BOUND_KEYS = { ttft: "slo-ttft", tpot: "slo-tpot", e2e: "slo-e2e" } as const;
/** `met` or `missed`: the requests that the table shows. */
export const OUTCOME_KEY = "slo";

/** Milliseconds above 0; null if the text says no such number. */
export function boundOf(text: string | undefined): number | null {
  const bound = Number(text?.trim() || Number.NaN);
  return bound > 0 && bound < Number.POSITIVE_INFINITY ? bound : null;
}

/** `TTFT ≤ 500 ms, TPOT ≤ 50 ms`. */
export function boundsText(given: Bounds): string {
  const named = Object.entries(given).filter(([, bound]) => bound !== null);
  return named.map(([name, bound]) => `${name.toUpperCase()} ≤ ${bound} ms`).join(", ");
}

export const bounds = computed<Bounds>(() => {
  const of = (name: keyof typeof BOUND_KEYS) => boundOf(extra.value[BOUND_KEYS[name]]);
  return { ttft: of("ttft"), tpot: of("tpot"), e2e: of("e2e") };
});
