/** The bounds that goodput is counted by, and which requests their table shows: kept in the address. */

import { computed } from "@preact/signals";
import type { Bounds } from "../data/model/slo";
import { secondsTyped } from "../format";
import { extra } from "./store";

/** What is bounded, and the key under which its bound is kept, in milliseconds: `slo-ttft=500`. */
export const BOUND_KEYS = { ttft: "slo-ttft", tpot: "slo-tpot", e2e: "slo-e2e" } as const;
/** `met` or `missed`: the requests that the table shows. */
export const OUTCOME_KEY = "slo";

/** Milliseconds above 0, of a bare number or of a time with its unit (`5s`); null if the text says no such time. */
export function boundOf(text: string | undefined): number | null {
  const seconds = secondsTyped(text ?? "");
  const bound = seconds === null ? Number(text?.trim() || Number.NaN) : Number((seconds * 1e3).toPrecision(12));
  return bound > 0 && bound < Number.POSITIVE_INFINITY ? bound : null;
}

/** 500 ms, 2.5 s; of milliseconds. */
export function boundText(bound: number): string {
  return bound < 1e3 ? `${bound} ms` : `${bound / 1e3} s`;
}

/** `TTFT ≤ 5 s, TPOT ≤ 50 ms`. */
export function boundsText(given: Bounds): string {
  return Object.entries(given)
    .filter(([, bound]) => bound !== null)
    .map(([name, bound]) => `${name.toUpperCase()} ≤ ${boundText(bound)}`)
    .join(", ");
}

const of = (name: keyof typeof BOUND_KEYS) => computed(() => boundOf(extra.value[BOUND_KEYS[name]]));
const [ttft, tpot, e2e] = [of("ttft"), of("tpot"), of("e2e")];

/** The same object until a bound changes, whatever else does in the address. */
export const bounds = computed<Bounds>(() => ({ ttft: ttft.value, tpot: tpot.value, e2e: e2e.value }));
