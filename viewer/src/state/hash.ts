/** The state of the page as the hash of its address, and back: everyone who gets the address sees the same. */

export const TABS = ["overview", "timeline", "requests", "statistics", "compare"] as const;
export type Tab = (typeof TABS)[number];
export const TAB_TITLES: Readonly<Record<Tab, string>> = {
  overview: "Overview",
  timeline: "Timeline",
  requests: "Requests",
  statistics: "Statistics",
  compare: "Compare",
};

/** Steps are numbers of the trace, not rows: a trace read to another length keeps them. */
export interface HashState {
  /** Path for `/api/file`, of the steps file. */
  trace: string | null;
  /** Its requests file is read as well. */
  reqs: boolean;
  /** Path of the trace that Compare sets beside it. */
  with: string | null;
  /** It is followed; `paused`: and the end is not kept in view. */
  live: "" | "end" | "paused";
  tab: Tab;
  /** In view, from the first number up to the second, fractions of steps included; and selected by dragging. */
  view: [number, number] | null;
  selection: [number, number] | null;
  /** Focused step and request. */
  step: number | null;
  req: string | null;
  filter: string;
  /** Whatever else the views keep there, by their own names. */
  extra: Record<string, string>;
}

export const EMPTY: HashState = {
  trace: null,
  reqs: false,
  with: null,
  live: "",
  tab: "overview",
  view: null,
  selection: null,
  step: null,
  req: null,
  filter: "",
  extra: {},
};

/** Longer than any honest hash; a request id of a megabyte stays out of the address. */
const MOST_TEXT = 2_000;

/** Without the `#`. Values that are the default are left out. */
export function writeHash(state: HashState): string {
  const parts = new URLSearchParams();
  if (state.trace) parts.set("trace", state.trace);
  if (state.reqs) parts.set("reqs", "1");
  if (state.with) parts.set("with", state.with);
  if (state.live) parts.set("live", state.live === "end" ? "1" : state.live);
  if (state.tab !== tabWithout(state)) parts.set("tab", state.tab);
  if (state.view) parts.set("view", state.view.join(".."));
  if (state.selection) parts.set("sel", state.selection.join(".."));
  if (state.step !== null) parts.set("step", String(state.step));
  if (state.req !== null && state.req.length <= MOST_TEXT) parts.set("req", state.req);
  if (state.filter && state.filter.length <= MOST_TEXT) parts.set("filter", state.filter);
  for (const [name, value] of Object.entries(state.extra)) if (value) parts.set(name, value);
  return parts.toString();
}

/** Never throws; what makes no sense is left at its default. */
export function readHash(hash: string): HashState {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const named = oneOf(TABS, parts.get("tab")) !== null;
  const take = (name: string): string | null => {
    const value = parts.get(name);
    parts.delete(name);
    return value === "" ? null : value;
  };
  const state: HashState = {
    trace: take("trace"),
    reqs: take("reqs") === "1",
    with: take("with"),
    live: liveOf(take("live")),
    tab: oneOf(TABS, take("tab")) ?? EMPTY.tab,
    view: pair(take("view"), PLACE),
    selection: pair(take("sel"), WHOLE),
    step: whole(take("step")),
    req: take("req"),
    filter: take("filter") ?? "",
    // Of older addresses: what one likes to look at is not the reader's.
    extra: Object.fromEntries(
      [...parts].filter(([name, value]) => name !== "theme" && /^[a-z][\w-]*$/i.test(name) && value !== ""),
    ),
  };
  return named ? state : { ...state, tab: tabWithout(state) };
}

/** What an address without a tab means: one that names a place in the trace, the Timeline; else the Overview. */
function tabWithout({ view, selection, step, req, filter }: HashState): Tab {
  const place = view ?? selection ?? step ?? req ?? (filter || null);
  return place === null ? EMPTY.tab : "timeline";
}

function oneOf<T extends string>(allowed: readonly T[], text: string | null): T | null {
  return allowed.find((name) => name === text) ?? null;
}

function liveOf(text: string | null): HashState["live"] {
  return text === "1" ? "end" : text === "paused" ? "paused" : "";
}

const WHOLE = /^-?\d{1,16}$/;
/** A step, and how far in it. */
const PLACE = /^-?\d{1,16}(?:\.\d{1,3})?$/;

function whole(text: string | null): number | null {
  return text !== null && WHOLE.test(text) ? Number(text) : null;
}

function pair(text: string | null, shape: RegExp): [number, number] | null {
  const [first, last, ...more] = (text ?? "").split("..").map((part) => (shape.test(part) ? Number(part) : null));
  if (first === null || last === null || last === undefined || more.length > 0 || last < first) return null;
  return [first, last];
}
