/** Where the page begins: the state from its address, then a trace inside it, or the one that the address names. */

import "./theme.css";
import { render } from "preact";
import { EMBEDDED_ID, embedded, failure as failureOf } from "./data";
import { App } from "./shell/App";
import { startDropping } from "./shell/DropCard";
import { startFiltering } from "./state/filtering";
import { type HashState, readHash } from "./state/hash";
import { startLevels } from "./state/levels";
import { onReplaced } from "./state/live";
import { expectState, open, openPath, origins, SERVED } from "./state/loader";
import { applyToPage, applyToTrace, currentState, startAddress } from "./state/restore";
import { failure, trace } from "./state/store";
import { startTheme } from "./state/theme";

async function begin(state: HashState): Promise<void> {
  expectState(state);
  const inside = document.getElementById(EMBEDDED_ID);
  if (inside?.textContent?.trim()) {
    const { name = "", stepsName = "", requestsName = null } = inside.dataset;
    try {
      await open(await embedded(inside.textContent, { name, steps: stepsName, requests: requestsName }));
    } catch (error) {
      failure.value = failureOf(error);
    }
  } else if (state.trace && SERVED) {
    await openPath(state.trace, { requests: state.reqs, live: state.live });
    if (state.with) await openPath(state.with, { requests: state.reqs, target: "other" });
  }
}

function obey(state: HashState): void {
  applyToPage(state);
  const store = trace.peek();
  if (state.trace && state.trace !== origins.trace?.path) void begin(state);
  else if (store) applyToTrace(store, state);
}

export function startPage(): void {
  const state = readHash(location.hash);
  startTheme();
  applyToPage(state);
  startLevels();
  startFiltering();
  startDropping();
  onReplaced((path) => void openPath(path, { requests: false, live: true }));
  startAddress(() => currentState(origins.trace, origins.other?.path ?? null), obey);
  const root = document.getElementById("app");
  if (root) render(<App />, root);
  void begin(state);
}
