/** Moments that somebody marked, such as a deploy or an alert: `marks=1732467000:deploy,90:alert` in the address. */

import { computed } from "@preact/signals";
import { originOf } from "../data/clock";
import { extra, revision, trace } from "./store";

/** Times on the trace's clock. */
export const marks = computed<{ ts: number; text: string }[]>(() => {
  revision.value;
  const store = trace.value;
  return store ? marksOf(extra.value["marks"] ?? "", originOf(store)) : [];
});

/** Seconds or milliseconds since 1970, else seconds since the beginning of the run. */
export function marksOf(text: string, origin: number): { ts: number; text: string }[] {
  return text.split(",").flatMap((part) => {
    const found = /^(\d+(?:\.\d+)?)(?::(.*))?$/.exec(part.trim());
    if (!found) return [];
    const value = Number(found[1]);
    const seconds = value > 1e11 ? value / 1e3 : value;
    return [{ ts: seconds > 1e9 ? seconds : origin + seconds, text: (found[2] ?? "").slice(0, 60) }];
  });
}
