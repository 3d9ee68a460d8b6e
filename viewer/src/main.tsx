/** Where the page begins: the state from its address, then a trace inside it, or the one that the address names. */

import "./theme.css";
import { render } from "preact";
import { EMBEDDED_ID, embedded, failure as failureOf } from "./data";
import { App } from "./shell/App";
import { startDropping } from "./shell/DropCard";
import { startFiltering } from "./state/filtering";
import { type HashState, readHash } from "./state/hash";
import { startAddress } from "./state/history";
import { startLevels } from "./state/levels";
import { onReplaced, watchScrolling } from "./state/live";
import {
  closeOther,
  closeTrace,
  expectState,
  isExpecting,
  keyOf,
  open,
  openPath,
  origins,
  reopen,
  SERVED,
} from "./state/loader";
import { applyToPage, applyToTrace, currentState } from "./state/restore";
import { announce, failure, trace } from "./state/store";
import { startTheme } from "./state/theme";

/** The second trace that an address named, until it is there: it is part of the address meanwhile. */
let coming: string | null = null;

async function begin(state: HashState): Promise<void> {
  const inside = document.getElementById(EMBEDDED_ID);
  if (inside?.firstChild) {
    expectState(state);
    const { name = "", stepsName = "", requestsName = null } = inside.dataset;
    try {
      const files = embedded(inside.textContent ?? "", { name, steps: stepsName, requests: requestsName });
      // The text is of no more use to the page: it may be hundreds of megabytes.
      inside.textContent = "";
      await open(await files);
    } catch (error) {
      expectState(null);
      failure.value = failureOf(error);
    }
  } else if (state.trace && SERVED) {
    expectState(state);
    coming = state.with;
    await openPath(state.trace, { requests: state.reqs, live: state.live !== "", paused: state.live === "paused" });
    await besides(state);
  } else expectState(state, false);
}

/** The second trace is the one that the address names, or none. */
async function besides({ with: path, reqs }: HashState): Promise<void> {
  const now = origins.other?.path ?? null;
  coming = path;
  if (path === now || !SERVED) coming = null;
  else if (path) await openPath(path, { requests: reqs, target: "other" });
  else closeOther();
  if (coming === path) coming = null;
}

/** Show what an entry of the history, or a typed address, says. */
function obey(state: HashState, key: string | null): void {
  applyToPage(state);
  const store = trace.peek();
  const same = key === null ? !state.trace || state.trace === origins.trace?.path : key === keyOf(store, origins.trace);
  if (same) {
    if (!store) return;
    applyToTrace(store, state);
    void besides(state);
  } else if (key && reopen(key, state)) return;
  else if (state.trace && SERVED) void begin(state);
  else {
    closeTrace();
    if (key) announce("That trace was a file of this machine: open it again");
  }
}

export function startPage(): void {
  const inside = document.getElementById(EMBEDDED_ID);
  // A page that brings its trace may say what it shows at first.
  const state = readHash(location.hash || (inside?.dataset["state"] ?? ""));
  startTheme();
  applyToPage(state);
  startLevels();
  startFiltering();
  startDropping();
  watchScrolling();
  onReplaced((path) => void openPath(path, { requests: origins.trace?.reqs ?? false, live: true }));
  startAddress({
    landing: !inside && !(state.trace && SERVED),
    place: () => ({
      key: keyOf(trace.value, origins.trace),
      state: currentState(origins.trace, origins.other?.path ?? coming),
    }),
    obey,
    busy: isExpecting,
  });
  const root = document.getElementById("app");
  if (root) render(<App />, root);
  void begin(state);
}
