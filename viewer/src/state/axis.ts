/** One axis for the whole page: strip, lanes and charts lie by time, or by step if the user says so. */

import { computed } from "@preact/signals";
import type { AxisKind } from "../charts/axis";
import { hasTimes } from "../data/clock";
import { extra, revision, setExtra, trace } from "./store";

export const AXIS_KEY = "axis";

/** Times are known, so that there is a choice. */
export const timed = computed(() => {
  revision.value;
  return trace.value !== null && hasTimes(trace.value);
});

export const axisKind = computed<AxisKind>(() => (timed.value && extra.value[AXIS_KEY] !== "steps" ? "time" : "steps"));

export function setAxis(kind: AxisKind): void {
  setExtra(AXIS_KEY, kind === "steps" ? kind : "");
}
