/** The decision of a step: the recorded reason with its numbers, beside what can be reconstructed without it. */

import { useEffect, useState } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import { outcome as outcomeOf, rawStep, recorded as recordedOf, verdict as verdictOf } from "../data";
import { momentText } from "../data/clock";
import { endOfRow } from "../data/lives";
import { MISSING, type RequestIndex, type Row } from "../data/model/columns";
import type { RecordedReason, Verdict } from "../data/model/moment";
import type { KVNumbers, Outcome } from "../data/model/outcomes";
import type { Pressure } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { pressureOfRun, sinceOf } from "../data/since";
import { CopyButton } from "../export/CopyButton";
import { count, milliseconds, plural } from "../format";
import { StepLink } from "../requests/StepLink";
import { StepTakers } from "../requests/TakersSection";
import { toggleTerm } from "../state/filter";
import { episodeOf, sameEpisode, sameReason } from "../state/moves";
import { filterText, focusRequest, revision, scope } from "../state/store";
import { useComputed } from "../statistics/useStatistics";
import { cut, middle, plainJson } from "../text";
import { times } from "../timeline/content";

interface Props {
  store: TraceStore;
  row: Row;
}

export function StepPanel({ store, row }: Props) {
  const { elapsed, delta } = times(store, row);
  const shown = store.shown[store.steps.shown[row]];
  const recorded = recordedOf(store, row);
  return (
    <section aria-label="Step">
      <h2>Step {count(store.steps.number[row])}</h2>
      <p class="quiet number left">{[elapsed, delta].filter(Boolean).join(" ")}</p>
      <p class={`reason-name${shown.blocked ? " blocked-item" : ""}`}>
        <Swatch family={shown.family} /> <strong>{middle(shown.name, 60)}</strong>{" "}
        <span class="quiet">{shown.recorded ? "recorded" : shown.blocked ? "reconstructed" : ""}</span>
      </p>
      <p>{shown.meaning}</p>
      <Episode store={store} row={row} />
      <p class="actions">
        <button type="button" title="Next step with this reason (n)" onClick={() => sameReason(1)}>
          next such step
        </button>
        <button
          type="button"
          title="First step of the next stretch of steps with this reason (e)"
          onClick={() => sameEpisode(1)}
        >
          next episode
        </button>
        <button
          type="button"
          onClick={() => {
            filterText.value = toggleTerm(filterText.value, "reason", shown.name);
          }}
        >
          filter by it
        </button>
      </p>
      {recorded && <Recorded store={store} recorded={recorded} shown={shown.name} />}
      <StepTakers store={store} row={row} />
      <Reconstructed verdict={verdictOf(store, row)} recorded={recorded} has={store.hasReasons} />
      <Named store={store} row={row} />
      <Raw store={store} row={row} />
    </section>
  );
}

/** Since when requests are held back for it, as the verdict has it, and the steps on end that are the same. */
function Episode({ store, row }: Props) {
  const { first, last } = episodeOf(store, row);
  const [since, worst] = useSince(store, row);
  const { number, ts } = store.steps;
  const seconds = endOfRow(store, last) - ts[first];
  return (
    <>
      {since >= 0 && (
        <p>
          Requests are held back for it since {momentText(store, ts[since])}, step{" "}
          <StepLink store={store} first={since} last={since} />
          {worst >= 0 && worst !== since && (
            <>
              ; elsewhere, where it was worst, since {momentText(store, ts[worst])}, step{" "}
              <StepLink store={store} first={worst} last={worst} />
            </>
          )}
          .
        </p>
      )}
      {first < last && (
        <p class="quiet">
          The same in {plural(last - first + 1, "step")} on end, {count(number[first])} to {count(number[last])}
          {Number.isFinite(seconds) && `: ${milliseconds(seconds)}`}.
        </p>
      )}
    </>
  );
}

/** In the stretch about the step, and where its reason was worst; -1 where the step holds no request back, or little, or until it is known. */
function useSince(store: TraceStore, row: Row): [Row, Row] {
  const range = scope.value;
  const { shown, ts } = store.steps;
  const wanted = range && row >= range.first && row <= range.last && store.shown[shown[row]].blocked;
  const pressed = useComputed<Pressure | null>(
    () => (wanted ? pressureOfRun(store, range) : Promise.resolve(null)),
    [store, revision.value, wanted, range?.first, range?.last],
    0,
  ).value;
  const since = pressed && wanted ? sinceOf(store, pressed, shown[row], { begin: ts[row] }) : -1;
  const worst = pressed && wanted ? sinceOf(store, pressed, shown[row]) : -1;
  return since <= row ? [since, worst] : [-1, -1];
}

interface RecordedProps {
  store: TraceStore;
  recorded: RecordedReason;
  /** What the panel has explained already. */
  shown: string;
}

function Recorded({ store, recorded, shown }: RecordedProps) {
  const { outcome, reason, held, meaning } = recorded;
  return (
    <>
      <h3>Recorded decision</h3>
      {reason && (
        <p>
          <code>{cut(reason, 80)}</code> held back {plural(held, "request")}
          <HeldAlso store={store} row={outcome.row} held={held} />. {reason !== shown && meaning}
        </p>
      )}
      {outcome.kv && <Blocks kv={outcome.kv} smallest={outcome.smallestNeed} />}
      <dl class="facts">
        {outcome.request !== null && (
          <div>
            <dt>stopped at</dt>
            <dd>
              <RequestLink store={store} request={outcome.request} />
            </dd>
          </div>
        )}
        {[
          ["admission pass", outcome.kind],
          ["tokens wanted", outcome.wantedTokens],
          ["tokens left of the budget", outcome.budgetLeft],
        ].map(
          ([name, value]) =>
            value !== null &&
            name !== null && (
              <div key={name}>
                <dt>{name}</dt>
                <dd class="number">{typeof value === "number" ? count(value) : cut(value, 60)}</dd>
              </div>
            ),
        )}
      </dl>
    </>
  );
}

/** Whom the step preempted waits as well then, though the queue that it found did not have it. */
function HeldAlso({ store, row, held }: Props & { held: number }) {
  const waiting = store.steps.numWaiting[row];
  const preempted = store.steps.numPreempted[row];
  const more = held - waiting;
  if (waiting === MISSING || more <= 0 || more > preempted) return null;
  return (
    <span class="quiet">
      {" "}
      ({count(waiting)} in the queue before it and {count(more)} that it preempted itself, which the counts before the
      step, as below, do not have)
    </span>
  );
}

/** What the head of the queue needed against what was there, as bars: the picture of "why not this one". */
function Blocks({ kv, smallest }: { kv: KVNumbers; smallest: number | null }) {
  const evictable = kv.cachedHits || null;
  const spoken = (kv.reserved ?? 0) + (kv.watermark ?? 0);
  const bars: [name: string, value: number | null, title: string, kind: string][] = [
    ["head needs", kv.needed, "Blocks that the first request in the queue had to take", "need"],
    ["free", kv.free, "Blocks in the free queue, cached ones that may be evicted included", "free"],
    [
      "smallest needs",
      smallest,
      "Blocks that the smallest waiting request needs, hits counted for the head only",
      "need",
    ],
    ["evictable hits", evictable, "Of what the head needs: free blocks that hold its own cached prefix", "hit"],
    ["reserved", spoken > 0 ? spoken : null, "Free, but reserved or kept by the watermark", "hit"],
    ["pinned", kv.pinned || null, "Blocks that a policy keeps for finished turns", "hit"],
  ];
  const known = bars.filter((bar): bar is [string, number, string, string] => bar[1] !== null);
  const most = Math.max(...known.map(([, value]) => value), 1);
  const headTooBig = kv.needed !== null && kv.free !== null && smallest !== null && smallest <= kv.free - spoken;
  return (
    <>
      <table class="blocks" aria-label="Blocks needed and free">
        <tbody>
          {known.map(([name, value, title, kind]) => (
            <tr key={name} title={title}>
              <th scope="row">{name}</th>
              <td class="number">{count(value)}</td>
              <td class="bar-cell">
                <span class={`bar ${kind}`} style={{ width: `${(100 * value) / most}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        In blocks{smallest !== null && "; prefix hits are counted for the head only"}.
        {kv.limit && ` The check that refused: ${cut(kv.limit, 60)}.`}
      </p>
      {headTooBig && <p>The smallest waiting request would have fitted: only the head of the queue was too big.</p>}
    </>
  );
}

const AGREEMENT = { true: "It agrees with the record.", false: "It disagrees with the record." } as const;

function Reconstructed({
  verdict,
  recorded,
  has,
}: {
  verdict: Verdict;
  recorded: RecordedReason | null;
  has: boolean;
}) {
  const numbers: [string, number | null][] = [
    ["unadmitted", verdict.unadmitted],
    ["effectiveFree", verdict.effectiveFree],
    ["minNeed", verdict.minNeed],
  ];
  const agrees = recorded?.agrees ?? null;
  const told = (
    <>
      <p>
        bucket <code>{verdict.bucket}</code>
        {verdict.reason && (
          <>
            , reason <code>{verdict.reason}</code>
          </>
        )}
        {agrees !== null && <span class={agrees ? "quiet" : "disagrees"}> {AGREEMENT[`${agrees}`]}</span>}
      </p>
      {verdict.badge && <p class={`badge ${has ? "guess" : "blocked"}`}>{cut(verdict.badge, 200)}</p>}
      <dl class="facts">
        {numbers.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="number">{value === null ? "not known" : count(value)}</dd>
          </div>
        ))}
      </dl>
    </>
  );
  // Where the record shows it, a guess is only of interest to users who judge the guess.
  if (!has) {
    return (
      <>
        <h3>Reconstructed</h3>
        {told}
      </>
    );
  }
  return (
    <details class="guess-details">
      <summary>What the counts alone would suggest</summary>
      {told}
    </details>
  );
}

/** Requests that the outcome names: skipped, without tokens, preempted. */
function Named({ store, row }: Props) {
  const found = outcomeOf(store, row);
  if (!found) return null;
  return (
    <>
      <Preempted store={store} outcome={found} />
      <Refused store={store} title="Skipped" refusals={found.skipped} omitted={found.skippedOmitted} />
      <Refused
        store={store}
        title="Running without tokens"
        refusals={found.notScheduled}
        omitted={found.notScheduledOmitted}
      />
    </>
  );
}

function Preempted({ store, outcome }: { store: TraceStore; outcome: Outcome }) {
  if (outcome.preemptions.length === 0) return null;
  return (
    <>
      <h3>Preempted</h3>
      <ul class="plain-list">
        {outcome.preemptions.map((found) => (
          <li key={found.request}>
            <RequestLink store={store} request={found.request} /> lost {plural(found.numComputedTokens ?? 0, "token")}
            {found.forRequest !== null && (
              <>
                {" "}
                for <RequestLink store={store} request={found.forRequest} />
              </>
            )}
            {found.kv && (
              <span class="quiet number">
                {" "}
                (needed {count(found.kv.needed)}, free {count(found.kv.free)})
              </span>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}

interface RefusedProps {
  store: TraceStore;
  title: string;
  refusals: Outcome["skipped"];
  omitted: number;
}

function Refused({ store, title, refusals, omitted }: RefusedProps) {
  if (refusals.length === 0 && omitted === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="plain-list">
        {refusals.map((found) => (
          <li key={`${found.request} ${found.reason}`}>
            {found.request !== null && <RequestLink store={store} request={found.request} />}{" "}
            <code>{cut(found.reason, 60)}</code>
          </li>
        ))}
        {omitted > 0 && <li class="quiet">and {count(omitted)} that are not listed</li>}
      </ul>
    </>
  );
}

export function RequestLink({ store, request }: { store: TraceStore; request: RequestIndex }) {
  return (
    <button
      type="button"
      class="plain id"
      title="Look at this request"
      onClick={() => {
        focusRequest.value = request;
      }}
    >
      {middle(store.requests.ids[request], 36)}
    </button>
  );
}

/** Characters of a record that are drawn. */
const LONGEST_RAW = 20_000;

/** The lines of the file, read on request. */
function Raw({ store, row }: Props) {
  const [lines, setLines] = useState<{ event: string; json: string }[] | null>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => setLines(null), [store, row]);
  useEffect(() => {
    let current = true;
    if (open && !lines) {
      rawStep(store, row).then(
        (found) => current && setLines(found),
        (error: unknown) => current && setLines([{ event: "could not be read again", json: String(error) }]),
      );
    }
    return () => {
      current = false;
    };
  }, [store, row, open, lines]);
  return (
    <details class="raw" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Records of this step, as in the file</summary>
      {lines?.map(({ event, json }, at) => (
        <div key={`${event} ${at}`}>
          <h4>
            {cut(event, 60)} <CopyButton text={() => plainJson(json)} label={`Copy ${cut(event, 60)} as JSON`} />
          </h4>
          <pre>{json.length <= LONGEST_RAW ? plainJson(json) : `${plainJson(json.slice(0, LONGEST_RAW))}…`}</pre>
          {json.length > LONGEST_RAW && (
            <p class="quiet">Shown up to here of {count(json.length)} characters; the copy is whole.</p>
          )}
        </div>
      ))}
    </details>
  );
}
