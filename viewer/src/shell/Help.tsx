/** Keys, the filter language, and what colours and letters mean. */

import { useEffect, useRef } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import type { ReasonFamily } from "../data/model/reasons";
import { FAMILIES, OVERLAYS, PILLS } from "../palette";
import { KEY_HELP } from "../state/keyboard";

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

export function Help({ onClose }: { onClose(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={onClose}>
      <div class="help-head">
        <h2 id="help-title">Keys, filter, colours</h2>
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
          <p class="quiet">Wheel: scroll. Ctrl and wheel: zoom. Drag over rows: select. Click: look at it.</p>
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
                <Swatch family={family as ReasonFamily} /> {words}
              </li>
            ))}
          </ul>
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
      </div>
    </dialog>
  );
}
