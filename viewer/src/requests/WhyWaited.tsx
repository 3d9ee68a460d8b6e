import { useMemo, useState } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import { placeInQueue, waitingSplit } from "../data";
import { headsOf, queueBefore, runningAt } from "../data/heads";
import { shortId } from "../data/labels";
import type { RequestIndex, Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import type { WaitingPart, WaitingSpan, WaitingSplit, WaitState } from "../data/model/waiting";
import { type Status, statusOf } from "../data/status";
import { count, milliseconds, ordinal, percent, plural } from "../format";
import { PLACES, WAIT_STATES } from "../generated/vocabulary";
import { focus } from "../state/moves";
import { revision } from "../state/store";
import { StepLink } from "./StepLink";
import { TakersSection } from "./TakersSection";
import "./requests.css";

interface WhyWaitedProps {
  store: TraceStore;
  request: RequestIndex;
}

/** "Why did this request wait?": its waiting time, divided among what held it. */
export function WhyWaited({ store, request }: WhyWaitedProps) {
  const changed = revision.value;
  const split = useMemo(() => waitingSplit(store, request), [store, request, changed]);
  return (
    <section class="why" aria-labelledby="why-title">
      <h3 id="why-title">Why did it wait?</h3>
      {split.us === 0 ? (
        <p>It did not wait: the first step that could see it scheduled it.</p>
      ) : (
        <Split store={store} split={split} />
      )}
      {split.reconstructed && (
        <p class="quiet">The trace records no arrivals: pieced together from the queues, exact to a step.</p>
      )}
    </section>
  );
}

function Split({ store, split }: { store: TraceStore; split: WaitingSplit }) {
  const states = (Object.keys(WAIT_STATES) as WaitState[]).filter((state) => split.byState[state] > 0);
  const never = split.firstScheduledUs === null;
  if (never) states.splice(0, states.length);
  return (
    <>
      <p>
        It waited <strong class="number">{micros(split.us)}</strong>
        {never
          ? `, and was never scheduled: ${ENDS[statusOf(store, split.request)]}.`
          : states.length === 1
            ? ` ${WAIT_STATES[states[0]]}.`
            : `: ${states.map((state) => `${micros(split.byState[state])} ${WAIT_STATES[state]}`).join(", ")}.`}
      </p>
      <div class="split-bar" aria-hidden="true">
        {split.parts.map((part) => (
          <span
            key={key(part)}
            title={`${shortId(part.reason, 40)}: ${micros(part.us)}`}
            style={{ flexGrow: part.us / split.us, background: `var(--family-${part.family})` }}
          />
        ))}
      </div>
      <ul class="split" aria-label="Waiting time by reason, most first">
        {split.parts.map((part) => (
          <Part key={key(part)} store={store} part={part} whole={split.us} />
        ))}
        <li class="split-sum">
          <div>
            <span>sum, {plural(split.steps, "step")}</span>
            <span class="number">{micros(split.parts.reduce((sum, part) => sum + part.us, 0))}</span>
            <span class="number">{percent(1)}</span>
          </div>
        </li>
      </ul>
      <TakersSection store={store} split={split} />
      <Before store={store} split={split} />
      <Spans store={store} spans={split.spans} />
    </>
  );
}

/** How a request that was never scheduled ended. */
const ENDS: Record<Status, string> = {
  finished: "it ended without",
  aborted: "it was aborted",
  refused: "it was refused",
  failed: "it failed",
  running: "the trace ends before",
  waiting: "it still waited when the trace ended",
};

function key(part: WaitingPart): string {
  return `${part.reason}/${part.place}`;
}

/** Exact to the microsecond while that can be read, as the sum is. */
function micros(us: number): string {
  return us < 1000 ? `${count(us)} µs` : milliseconds(us / 1e6);
}

/** Of a decode engine the time before it got a request is mostly the prefill engine's. */
function reasonName({ start }: TraceStore, reason: string): string {
  const { kv_transfer: transfer } = (start?.config ?? {}) as { kv_transfer?: { kv_role?: unknown } | null };
  const decodes = transfer?.kv_role === "kv_consumer";
  return reason === "front_end" && decodes ? "prefill engine" : shortId(reason, 40);
}

function Part({ store, part, whole }: { store: TraceStore; part: WaitingPart; whole: number }) {
  return (
    <li>
      <div>
        <span class="split-name">
          <Swatch family={part.family} />
          <span>{reasonName(store, part.reason)}</span>
        </span>
        <span class="number">{micros(part.us)}</span>
        <span class="number">{percent(part.us / whole)}</span>
      </div>
      <p>
        {part.meaning} {PLACES[part.place].meaning && <em>{PLACES[part.place].meaning}</em>}{" "}
        {part.steps > 0 && <StepsOf store={store} part={part} />}
      </p>
    </li>
  );
}

/** `3 steps: 7–9` where they are all there are; else `2 steps between 2,516 and 2,533`. */
function StepsOf({ store, part: { steps, firstRow, lastRow } }: { store: TraceStore; part: WaitingPart }) {
  const gaps = lastRow - firstRow + 1 > steps;
  return (
    <>
      {plural(steps, "step")}
      {gaps ? " between " : ": "}
      <StepLink store={store} first={firstRow} last={lastRow} and={gaps} />
    </>
  );
}

const HEADS_SHOWN = 8;

/** The requests at the head of the queue that were refused while it waited, longest first; and how far back it stood. */
function Before({ store, split }: { store: TraceStore; split: WaitingSplit }) {
  const [all, setAll] = useState(false);
  const heads = headsOf(split.spans);
  const first = store.requests.firstRow[split.request];
  const place = placeInQueue(store, first, split.request);
  if (heads.length === 0 && !place) return null;
  const seats = split.spans.find(({ reason }) => OF_SEATS.has(reason))?.firstRow ?? -1;
  const shown = all ? heads : heads.slice(0, HEADS_SHOWN);
  return (
    <section aria-label="Who stood before it">
      <h4>Who stood before it</h4>
      {place && (
        <p>
          It was <strong>{ordinal(place.place)}</strong> of {count(place.of)} in the queue when first seen (step{" "}
          <StepLink store={store} first={first} last={first} />
          ).
        </p>
      )}
      {place && place.place > 1 && (
        <Names store={store} words="Before it then" ids={queueBefore(store, first, place.place - 1)} row={first} />
      )}
      {seats >= 0 && (
        <Names
          store={store}
          words={`Running at step ${count(store.steps.number[seats])}, in the seats it waited for`}
          ids={runningAt(store, seats)}
          row={seats}
        />
      )}
      {heads.length > 0 && <h4>Refused at the head while it waited</h4>}
      {heads.length > 0 && (
        <ol class="stood-before">
          {shown.map((head) => (
            <li key={head.request}>
              <button
                type="button"
                class="plain id"
                title="Look at this request, when it first stood there"
                onClick={() => focus(head.firstRow, head.request)}
              >
                {shortId(store.requests.ids[head.request], 28)}
              </button>
              <span class="number">{micros(head.us)}</span>
              <span class="number">{percent(head.us / split.us)}</span>
            </li>
          ))}
        </ol>
      )}
      {heads.length > shown.length && (
        <button type="button" class="plain" onClick={() => setAll(true)}>
          all {count(heads.length)}
        </button>
      )}
    </section>
  );
}

/** Recorded, and guessed: as many were running as may. */
const OF_SEATS: ReadonlySet<string> = new Set(["max_num_seqs", "max-seqs"]);

interface NamesProps {
  store: TraceStore;
  words: string;
  ids: Int32Array;
  row: Row;
}

/** Requests by name, as many as fit; the rest counted, and shown on request. */
function Names({ store, words, ids, row }: NamesProps) {
  const [all, setAll] = useState(false);
  if (ids.length === 0) return null;
  const shown = ids.subarray(0, all ? MOST_NAMES : HEADS_SHOWN);
  return (
    <p class="names">
      {words}:{" "}
      {Array.from(shown, (request) => (
        <button
          type="button"
          class="plain id"
          key={request}
          title="Look at this request"
          onClick={() => focus(row, request)}
        >
          {shortId(store.requests.ids[request], 28)}
        </button>
      ))}
      {ids.length > shown.length &&
        (all ? (
          `… and ${count(ids.length - shown.length)} more`
        ) : (
          <button type="button" class="plain" onClick={() => setAll(true)}>
            and {count(ids.length - shown.length)} more
          </button>
        ))}
    </p>
  );
}

const MOST_NAMES = 500;

const SHOWN = 12;

/** The same in order of time: what held it first, what then. */
function Spans({ store, spans }: { store: TraceStore; spans: WaitingSpan[] }) {
  const [all, setAll] = useState(false);
  if (spans.length < 2) return null;
  const shown = all ? spans : spans.slice(0, SHOWN);
  return (
    <details class="spans">
      <summary>in order of time ({count(spans.length)})</summary>
      <ol>
        {shown.map((span) => (
          <li key={`${span.startUs}${span.reason}`}>
            <span class="number">{micros(span.endUs - span.startUs)}</span>
            <span>
              {span.state === "queued" ? "" : `${span.state}: `}
              {reasonName(store, span.reason)}
              {span.head !== null && <Behind store={store} head={span.head} row={span.firstRow} />}
            </span>
            {span.firstRow >= 0 && <StepLink store={store} first={span.firstRow} last={span.lastRow} />}
          </li>
        ))}
      </ol>
      {spans.length > shown.length && (
        <button type="button" class="plain" onClick={() => setAll(true)}>
          all {count(spans.length)}
        </button>
      )}
    </details>
  );
}

function Behind({ store, head, row }: { store: TraceStore; head: RequestIndex; row: number }) {
  return (
    <>
      {" behind "}
      <button type="button" class="plain id" onClick={() => focus(row, head)}>
        {shortId(store.requests.ids[head], 20)}
      </button>
    </>
  );
}
