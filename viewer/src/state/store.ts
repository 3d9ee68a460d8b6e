/**
 * What is loaded, shown and selected: the only place that views read it from and write it to.
 *
 * A `TraceStore` grows in place, so a signal that holds one does not change when rows are added. Read `trace.value` and
 * `revision.value` together: `revision` rises with everything that happens to the data of either trace.
 */

import { computed, signal } from "@preact/signals";
import type { Range, RequestIndex, Row } from "../data/model/columns";
import type { LoadFailure, LoadProgress } from "../data/model/sources";
import type { TraceStore } from "../data/model/trace";
import type { ThemeName } from "../palette";
import { parseFilter } from "./filter";
import type { Tab } from "./hash";

/** The trace on the page, and the one that Compare sets beside it. */
export const trace = signal<TraceStore | null>(null);
export const other = signal<TraceStore | null>(null);
export const revision = signal(0);

export const tab = signal<Tab>("overview");

/** Rows in view of the timeline, and of every chart: not whole while it moves; `last` is where the view ends. */
export interface View {
  first: number;
  last: number;
}
export const view = signal<View>({ first: 0, last: 0 });

/** What was selected by dragging, in rows, both included: statistics follow it. */
export const selection = signal<Range | null>(null);
/** The step that is looked at, and the request: -1 for none. The side panel shows them. */
export const focusRow = signal<Row>(-1);
export const focusRequest = signal<RequestIndex>(-1);

/** As typed. */
export const filterText = signal("");
export const filter = computed(() => parseFilter(filterText.value));

/** What the filter lets through: rows in rising order, and requests by index. Null: no filter, or no term of the kind. */
export interface Matches {
  rows: Int32Array | null;
  /** 1 where the request is meant by a `job:`, `req:` or plain term. */
  requests: Uint8Array | null;
}
export const matches = signal<Matches>({ rows: null, requests: null });
/** The filter is still at work. */
export const matching = signal(false);

export const themeChoice = signal<ThemeName | "system">("system");
export const systemTheme = signal<ThemeName>("light");
export const themeName = computed<ThemeName>(() =>
  themeChoice.value === "system" ? systemTheme.value : themeChoice.value,
);

/** Settings that a view keeps in the address under a name of its own, such as `lanes=wait`. */
export const extra = signal<Record<string, string>>({});

export function setExtra(name: string, value: string): void {
  extra.value = { ...extra.value, [name]: value };
}

/** In the address: `keys=off`. */
export const KEYS_KEY = "keys";

/** Keys of one letter do nothing. */
export function lettersAreOff(): boolean {
  return extra.value[KEYS_KEY] === "off";
}

/** A load in progress, of the trace or of the other one. */
export interface LoadState {
  target: "trace" | "other";
  name: string;
  progress: LoadProgress | null;
  /** The file holds no step yet. */
  waiting?: boolean;
  cancel(): void;
}
export const loading = signal<LoadState | null>(null);
export const failure = signal<LoadFailure | null>(null);

/** `connected` while the trace is followed; the sentence says what happened otherwise. */
export interface LiveState {
  phase: "off" | "waiting" | "receiving" | "lost";
  sentence: string;
  /** Keep the end in view: until the user moves away from it. */
  stick: boolean;
  /** When something new came last, or following began: of Date.now(). */
  heard: number;
}
export const live = signal<LiveState>({ phase: "off", sentence: "", stick: true, heard: 0 });

/** Announced to screen readers, and shown for a moment. */
export const announcement = signal("");

/** Milliseconds for which it is shown. */
const SHOWN_MS = 5_000;
let hiding: ReturnType<typeof setTimeout> | undefined;

export function announce(text: string): void {
  announcement.value = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    announcement.value = "";
  }, SHOWN_MS);
}

/** Range of the whole trace; null while it is empty. */
export function wholeRange(store: TraceStore | null = trace.value): Range | null {
  return store && store.rows > 0 ? { first: 0, last: store.rows - 1 } : null;
}

/** Seconds at the end of the run that figures are of, while nothing is selected: kept in the address. */
export const LAST_KEY = "last";

/** What statistics cover: the selection, else the last seconds that are requested, else everything. */
export const scope = computed<Range | null>(() => {
  revision.value;
  const whole = wholeRange();
  const seconds = Number(extra.value[LAST_KEY] || Number.NaN);
  if (selection.value || !whole || !(seconds > 0)) return selection.value ?? whole;
  const { ts } = (trace.value as TraceStore).steps;
  const from = ts[whole.last] - seconds;
  let [low, high] = [0, whole.last];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ts[middle] < from) low = middle + 1;
    else high = middle;
  }
  return { first: low, last: whole.last };
});
