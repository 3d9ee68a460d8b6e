/** Keys, the filter language, and what colours and letters mean. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import type { ReasonFamily } from "../data/model/reasons";
import { GLOSSARY } from "../data/shorthand";
import { BUCKETS, REASONS } from "../generated/vocabulary";
import { FAMILIES, OVERLAYS, PILLS } from "../palette";
import { KEY_HELP } from "../state/keyboard";
import { KEYS_KEY, lettersAreOff, setExtra } from "../state/store";

export const helpOpen = signal(false);

export function HelpButton() {
  return (
    <button
      type="button"
      class="icon"
      aria-label="Help: keys and filter"
      title="Help (?)"
      onClick={() => {
        helpOpen.value = true;
      }}
    >
      ?
    </button>
  );
}

const FILTERS: [string, string][] = [
  ["job:swe_0011", "steps in which a request of this job runs or waits"],
  ["req:t9", "the same for requests; parts of ids will do"],
  [
    "reason:kv",
    "steps whose recorded or reconstructed reason has this in its name; in Requests: requests that lost time to it",
  ],
  ["ttft:30s..", "requests with a TTFT of 30 s or more; also tpot:..80ms, e2e:, waited: (no unit: seconds)"],
  ["step:100..200", "steps 100 to 200; either end may be left out"],
  ["budget:90..100", "percent of the token budget; also kv:, hit:"],
  ["waiting:10..", "at least ten waiting; also running:, preempted:, finished:"],
  ["-job:swe_0011", "a minus takes out"],
  ['"two words"', "without a key: jobs and requests"],
];

/** What the legend calls the steps of a family: recorded reasons, then reconstructed buckets. */
function namesOf(family: string): string {
  const of = (table: Record<string, { family: string }>) =>
    Object.keys(table).filter((name) => table[name].family === family);
  return [...of(REASONS), ...of(BUCKETS)].join(", ");
}

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: a click beside the dialog; its key is Escape
    <dialog
      ref={dialog}
      class="help"
      aria-labelledby="help-title"
      onClose={() => {
        helpOpen.value = false;
      }}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div class="help-head">
        <h2 id="help-title">Keys, filter, colours, short words</h2>
        <button type="button" class="icon" aria-label="Close the help" onClick={() => dialog.current?.close()}>
          ✕
        </button>
      </div>
      <div class="help-columns">
        <section>
          <h3>Keys</h3>
          <dl class="keys">
            {KEY_HELP.map(({ keys, words }) => (
              <div key={words}>
                <dt>
                  {keys.map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </dt>
                <dd>{words}</dd>
              </div>
            ))}
          </dl>
          <label>
            <input
              type="checkbox"
              checked={!lettersAreOff()}
              onChange={(event) => setExtra(KEYS_KEY, event.currentTarget.checked ? "" : "off")}
            />{" "}
            Keys of one letter act (turn them off if you speak to your machine)
          </label>
          <p class="quiet">
            Wheel: scroll. Ctrl and wheel: zoom. Drag over rows or over the strip: select. Click: look at it.
          </p>
          <p class="quiet">
            Touch: tap a step, a chip or a bar to look at it; drag over rows or over the strip to select. Scroll the
            rows by the bar at their right; zoom with Fit and Rows.
          </p>
        </section>
        <section>
          <h3>Filter</h3>
          <dl class="filters">
            {FILTERS.map(([text, words]) => (
              <div key={text}>
                <dt>
                  <code>{text}</code>
                </dt>
                <dd>{words}</dd>
              </div>
            ))}
          </dl>
          <p class="quiet">Terms of one key widen, of different keys narrow.</p>
        </section>
        <section>
          <h3>Reasons</h3>
          <ul class="plain-list">
            {Object.entries(FAMILIES).map(([family, { words }]) => (
              <li key={family}>
                <Swatch family={family as ReasonFamily} />
                <span>
                  {words}
                  {namesOf(family) && <small class="quiet">: {namesOf(family)}</small>}
                </span>
              </li>
            ))}
          </ul>
          <p class="quiet">
            In the strip at the top a dark red mark says that requests were held back there, blue ones below are what
            passes the filter; the line is the share of KV blocks in use.
          </p>
          <h3>Requests</h3>
          <ul class="plain-list">
            {Object.entries(PILLS).map(([kind, { letter, words }]) => (
              <li key={kind}>
                <span
                  class="swatch"
                  aria-hidden="true"
                  style={{ "--fill": `var(--pill-${kind})`, "--ink": `var(--pill-${kind}-ink)` }}
                >
                  {letter}
                </span>{" "}
                {words}
              </li>
            ))}
            <li>
              <span class="swatch outlined" aria-hidden="true" /> {OVERLAYS.prefill.words}
            </li>
            <li>
              <span class="swatch" aria-hidden="true">
                {OVERLAYS.pinned.letter}
              </span>{" "}
              {OVERLAYS.pinned.words}
            </li>
          </ul>
        </section>
        <section class="glossary">
          <h3>Short words</h3>
          <dl>
            {GLOSSARY.map(([word, meaning]) => (
              <div key={word}>
                <dt>
                  <code>{word}</code>
                </dt>
                <dd>{meaning}</dd>
              </div>
            ))}
          </dl>
        </section>
      </div>
    </dialog>
  );
}
