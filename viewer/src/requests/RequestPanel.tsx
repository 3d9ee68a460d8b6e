import { useMemo } from "preact/hooks";
import { lookStyle, PHASES } from "../charts/tones";
import { life as lifeOf } from "../data";
import type { RequestIndex } from "../data/model/columns";
import type { Phase, RequestLife } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";
import { CopyButton } from "../export/CopyButton";
import { count, milliseconds } from "../format";
import { filterText, revision, themeName } from "../state/store";
import { requestFacts } from "./facts";
import { StepLink } from "./StepLink";
import { WhyWaited } from "./WhyWaited";
import "./requests.css";

interface RequestPanelProps {
  store: TraceStore;
  request: RequestIndex;
}

/** The side panel of a request: its life, and why it waited. */
export function RequestPanel({ store, request }: RequestPanelProps) {
  const changed = revision.value;
  const life = useMemo(() => lifeOf(store, request), [store, request, changed]);
  const id = store.requests.ids[request];
  const job = store.requests.job[request];
  return (
    <div class="request-panel">
      <p class="request-id">
        <span class="id">{cut(id)}</span> <CopyButton text={() => id} label="Copy the request's id" />
      </p>
      {job >= 0 && (
        <p>
          job{" "}
          <button
            type="button"
            class="plain id"
            title="Show only this job"
            onClick={() => {
              filterText.value = `job:${quoted(store.jobs.ids[job])}`;
            }}
          >
            {cut(store.jobs.ids[job])}
          </button>
        </p>
      )}
      <WhyWaited store={store} request={request} />
      <Life store={store} request={request} life={life} />
      <h3>Figures</h3>
      <dl class="facts">
        {requestFacts(store, request).map(({ name, value, title }) => (
          <div key={name}>
            <dt title={title}>{name}</dt>
            <dd class="number">{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

const LONGEST_ID = 400;

/** Ids come from the trace and may be a megabyte long; the whole of it goes to the clipboard. */
function cut(text: string): string {
  if (text.length <= LONGEST_ID) return text;
  return `${text.slice(0, LONGEST_ID)}… (${count(text.length)} characters)`;
}

function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `"${text.replaceAll('"', "").slice(0, 200)}"`;
}

interface LifeProps extends RequestPanelProps {
  life: RequestLife;
}

const MOST_PHASES = 40;

function Life({ store, life }: LifeProps) {
  const all = life.phases;
  const shown = all.slice(0, MOST_PHASES);
  const whole = all.reduce((sum, phase) => sum + lengthOf(phase), 0);
  return (
    <>
      <h3>Life</h3>
      {all.length === 0 && <p class="quiet">The trace does not show it in any queue.</p>}
      <div class="life-bar" aria-hidden="true">
        {all.map((phase, index) => (
          <span
            key={`${phase.kind}${index}`}
            style={{ ...lookStyle(PHASES[phase.kind], themeName.value), flexGrow: whole ? lengthOf(phase) / whole : 1 }}
          />
        ))}
      </div>
      <ol class="life">
        {shown.map((phase) => (
          <li key={`${phase.kind}${phase.first}`}>
            <span class="key" style={lookStyle(PHASES[phase.kind], themeName.value)} aria-hidden="true" />
            <span>{PHASES[phase.kind].words}</span>
            <StepLink store={store} first={phase.first} last={phase.last} />
            <span class="number">{milliseconds(phase.end - phase.begin)}</span>
          </li>
        ))}
      </ol>
      {all.length > shown.length && <p class="quiet">… and {count(all.length - shown.length)} more phases.</p>}
      {life.unfinished && <p class="quiet">The trace begins or ends in the middle of it.</p>}
    </>
  );
}

function lengthOf(phase: Phase): number {
  const seconds = phase.end - phase.begin;
  return Number.isNaN(seconds) ? phase.last - phase.first + 1 : seconds;
}
