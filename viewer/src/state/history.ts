/** The address follows the page, and the page follows the address: Back leads to where one was before. */

import { effect } from "@preact/signals";
import { EMPTY, type HashState, readHash, writeHash } from "./hash";
import { loading, revision } from "./store";

/** Milliseconds of quiet before the address is written: browsers refuse to have it rewritten all the time. */
const QUIET_MS = 250;
/** The address is never behind the page for longer. */
const LATEST_MS = 1_000;

/** What an entry of the history holds beside its address: the trace that was open, for those that have no path. */
interface Entry {
  key: string;
}

/** Where the page is. `key` names the trace that is open, "" for none. */
export interface Place extends Entry {
  state: HashState;
}

/** The page moved to another place, to which Back should lead; not just another zoom, or the step beside. */
export function isNewPlace(before: Place, now: Place): boolean {
  const [a, b] = [before.state, now.state];
  if (before.key !== now.key || a.trace !== b.trace || a.with !== b.with) return true;
  if (a.tab !== b.tab || a.req !== b.req) return true;
  if (String(a.selection) !== String(b.selection)) return !isExtended(a.selection, b.selection);
  // A filter is typed letter by letter.
  if (a.filter !== b.filter) return a.filter === "" || b.filter === "";
  if (a.step === b.step) return false;
  return a.step === null || b.step === null || Math.abs(a.step - b.step) > 1;
}

/** One of its ends was moved on: the same selection, growing or shrinking. */
function isExtended(before: HashState["selection"], now: HashState["selection"]): boolean {
  return before !== null && now !== null && (before[0] === now[0] || before[1] === now[1]);
}

interface Page {
  /** It begins with nothing loaded: the first trace is a place to come back from. */
  landing: boolean;
  place(): Place;
  /** Be what an address says. `key`: of the entry's trace; null if the address was typed. */
  obey(state: HashState, key: string | null): void;
  /** The page is on its way to another place: there is nothing to write down yet. */
  busy(): boolean;
}

/** Keep the address up to date, and obey it when the user goes back or changes it. */
export function startAddress({ landing, place, obey, busy }: Page): void {
  let timer = 0;
  /** Since when something is to be written; 0: nothing is. */
  let pending = 0;
  let written = location.hash.replace(/^#/, "");
  let before: Place = { key: "", state: readHash(written) };
  // A trace in the page, or one that the address names, is where the page begins.
  let begun = landing;
  // The page is being made what an entry says: what it is in between is no place.
  let arriving = false;
  history.replaceState({ key: "" } satisfies Entry, "");
  const write = () => {
    pending = 0;
    if (busy()) return;
    const now = place();
    const hash = writeHash(now.state);
    if (hash === written && now.key === before.key) return;
    const push = begun && isNewPlace(before, now);
    begun ||= now.key !== "";
    written = hash;
    before = now;
    const url = hash === "" ? location.pathname + location.search : `#${hash}`;
    history[push ? "pushState" : "replaceState"]({ key: now.key } satisfies Entry, "", url);
  };
  effect(() => {
    revision.value;
    loading.value;
    const now = place();
    clearTimeout(timer);
    // Of a trace that is followed something changes all the time: there is never quiet.
    if (pending && performance.now() - pending > LATEST_MS && !arriving) write();
    pending ||= performance.now();
    // A trace that was just opened is a place of its own, also when the user goes on within a moment.
    if (begun && !arriving && now.key !== before.key) write();
    timer = window.setTimeout(write, QUIET_MS);
  });
  const arrive = (entry: Entry | null) => {
    const hash = location.hash.replace(/^#/, "");
    if (hash === written && (entry === null || entry.key === before.key)) return;
    written = hash;
    begun = true;
    clearTimeout(timer);
    before = { key: entry?.key ?? before.key, state: { ...EMPTY, ...readHash(hash) } };
    arriving = true;
    obey(before.state, entry?.key ?? null);
    arriving = false;
  };
  window.addEventListener("popstate", (event) => arrive(event.state as Entry | null));
  window.addEventListener("hashchange", () => arrive(history.state as Entry | null));
}
