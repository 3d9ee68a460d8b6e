/** The ways to a trace: the list of the server, files of this machine, a path. For the page, or for Compare's other one. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { openPath, SERVED, type Target } from "../state/loader";
import { Browse } from "./Browse";
import { DropCard } from "./DropCard";

export function Openers({ target, children }: { target: Target; children?: ComponentChildren }) {
  return (
    <div class="openers">
      {SERVED && <Browse target={target} />}
      <div class="cards">
        <DropCard target={target} />
        {SERVED && <PathCard target={target} />}
        {children}
      </div>
    </div>
  );
}

function PathCard({ target }: { target: Target }) {
  const path = useSignal("");
  const requests = useSignal(true);
  return (
    <form
      class="card"
      onSubmit={(event) => {
        event.preventDefault();
        if (path.value.trim()) void openPath(path.value.trim(), { requests: requests.value, target });
      }}
    >
      <h2>A path</h2>
      <p>A trace file on the machine of the server, in one of the folders it was given.</p>
      <div class="line">
        <input
          type="text"
          aria-label="Path of a trace file"
          placeholder="/…/sched_trace.fcfs.steps.jsonl"
          spellcheck={false}
          value={path.value}
          onInput={(event) => {
            path.value = event.currentTarget.value;
          }}
        />
        <button type="submit">Open</button>
      </div>
      <label>
        <input
          type="checkbox"
          checked={requests.value}
          onChange={(event) => {
            requests.value = event.currentTarget.checked;
          }}
        />{" "}
        with its requests file
      </label>
    </form>
  );
}
