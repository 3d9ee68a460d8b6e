import { useState } from "preact/hooks";
import { BarList, type BarRow } from "../charts/BarList";
import { shortId } from "../data/labels";
import { BUCKETS, STEP_REASONS } from "../data/model/reasons";
import type { ReasonTotals, Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { bucketMeaning, familyOf, meaningOf } from "../data/wording";
import { count, duration, percent, plural } from "../format";
import { bucket, disagreement, reason, within } from "./filters";

/** A reason comes from the file: it may be a megabyte long. */
const LONGEST_NAME = 40;
/** Seconds; less rounds to nothing. */
const LEAST_UNSEEN = 0.0005;

interface LimitsProps {
  store: TraceStore;
  found: Statistics;
  onFilter(text: string): void;
}

/** What limited admission: the recorded reasons, beside them the ten buckets, and how often the two disagree. */
export function LimitsSection({ store, found, onFilter }: LimitsProps) {
  return (
    <section aria-labelledby="limits-title">
      <h3 id="limits-title">What limited admission</h3>
      <div class={found.recorded.length ? "columns wide-right" : "columns"}>
        {(found.recorded.length > 0 || store.hasReasons) && (
          <Recorded store={store} found={found} onFilter={onFilter} />
        )}
        {store.hasReasons ? (
          <details class="guess-details">
            <summary>What the counts alone would suggest: ten buckets, reconstructed</summary>
            <Buckets store={store} found={found} onFilter={onFilter} />
          </details>
        ) : (
          <Buckets store={store} found={found} onFilter={onFilter} />
        )}
        {found.recorded.length === 0 && !store.hasReasons && (
          <Guesses store={store} found={found} onFilter={onFilter} />
        )}
      </div>
    </section>
  );
}

function Recorded({ store, found, onFilter }: LimitsProps) {
  const scope = within(store, found.range);
  const most = Math.max(...found.recorded.map((totals) => totals.seconds), 0);
  const longest = Math.max(...found.recorded.map((totals) => totals.requests), 1);
  const rows = found.recorded.map(
    (totals): BarRow => ({
      key: totals.reason,
      label: shortId(totals.reason, LONGEST_NAME),
      family: totals.family,
      share: most > 0 ? totals.seconds / most : totals.requests / longest,
      figures: [count(totals.steps), count(totals.requests), duration(totals.seconds)],
      meaning: meaningOf(totals.reason),
      onClick: () => onFilter(reason(totals.reason) + scope),
    }),
  );
  return (
    <div>
      <h4>Recorded reasons</h4>
      <p class="quiet">
        Written down where the decision was taken. Time lost is summed over the requests: each step's length times the
        requests that it held back.
      </p>
      {rows.length ? (
        <BarList label="Recorded reasons" columns={["steps", "held", "time lost"]} rows={rows} />
      ) : (
        <p>No request was held back in these steps.</p>
      )}
      <KVNumbers totals={found.recorded} />
      {(found.unseenSeconds ?? 0) >= LEAST_UNSEEN && (
        <p class="quiet">
          Before a step could see them, requests waited <span class="number">{duration(found.unseenSeconds)}</span> in
          all for the step that ran when they arrived.
        </p>
      )}
    </div>
  );
}

/** The numbers behind the refusals for memory: the head of the queue against the smallest request. */
function KVNumbers({ totals }: { totals: ReasonTotals[] }) {
  const refusals = totals.filter((one) => one.kv !== null);
  if (refusals.length === 0) return null;
  return (
    <table class="numbers" aria-label="Blocks, on average over the steps of each refusal">
      <thead>
        <tr>
          <th scope="col">blocks, on average</th>
          {["needed", "own hits", "free", "smallest need", "smaller fits"].map((name) => (
            <th scope="col" class="number" key={name}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {refusals.map(({ reason: name, kv, steps }) => (
          <tr key={name}>
            <th scope="row">{shortId(name, LONGEST_NAME)}</th>
            <td class="number">{count(kv?.needed)}</td>
            <td class="number">{count(kv?.cachedHits)}</td>
            <td class="number">{count(kv?.free)}</td>
            <td class="number">{count(kv?.smallestNeed)}</td>
            <td
              class="number"
              title="Steps in which the smallest waiting request needed no more than was free and not reserved: only the order of the queue kept it out."
            >
              {count(kv?.smallerWouldFitSteps)} of {count(steps)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Buckets({ store, found, onFilter }: LimitsProps) {
  const scope = within(store, found.range);
  const [first] = found.buckets.length ? [Math.max(...found.buckets)] : [0];
  const rows = BUCKETS.map((name, index): BarRow => {
    const steps = found.buckets[index];
    return {
      key: name,
      label: name,
      family: familyOf(name),
      share: first ? steps / first : 0,
      figures: [count(steps), percent(found.steps ? steps / found.steps : null)],
      meaning: bucketMeaning(name),
      onClick: () => onFilter(bucket(name) + scope),
    };
  });
  return (
    <div>
      <h4>{found.recorded.length ? "Buckets, reconstructed" : "Steps, by bucket"}</h4>
      <p class="quiet">Guessed from the counts of each step, by the rules of the trace format.</p>
      <BarList label="Steps per bucket" columns={["steps", "of the steps"]} rows={rows} />
      <Agreement store={store} found={found} onFilter={onFilter} />
    </div>
  );
}

/** The classifier's finer reasons, for traces that record none: which question was answered with yes. */
function Guesses({ store, found, onFilter }: LimitsProps) {
  const scope = within(store, found.range);
  const most = Math.max(...found.reasons, 0);
  const rows = STEP_REASONS.map((name, index) => ({
    key: name,
    label: name,
    family: familyOf(name),
    share: most ? found.reasons[index] / most : 0,
    figures: [count(found.reasons[index]), percent(found.steps ? found.reasons[index] / found.steps : null)],
    meaning: meaningOf(name),
    onClick: () => onFilter(reason(name) + scope),
  }));
  return (
    <div>
      <h4>Blocked steps, by the check that most likely fired</h4>
      <p class="quiet">Asked in this order; the first yes is the answer.</p>
      <BarList label="Blocked steps per reason" columns={["steps", "of the steps"]} rows={rows} />
    </div>
  );
}

const SHOWN = 4;

function Agreement({ store, found, onFilter }: LimitsProps) {
  const [open, setOpen] = useState(false);
  const truth = found.agreement;
  if (!truth || truth.compared === 0) {
    return store.hasReasons ? null : <p class="quiet">This trace records no reasons to compare these guesses with.</p>;
  }
  const wrong = truth.pairs.filter((pair) => !pair.agrees);
  const shown = open ? wrong : wrong.slice(0, SHOWN);
  return (
    <div class="agreement">
      <p>
        Of {plural(truth.compared, "step")} whose reason is recorded,{" "}
        <strong class="number">{count(truth.disagreeing)}</strong> contradict the guess (
        {percent(truth.disagreeing / truth.compared)}).
      </p>
      {wrong.length > 0 && (
        <ul class="bare">
          {shown.map((pair) => (
            <li key={`${pair.bucket}/${pair.recorded}`}>
              <button
                type="button"
                class="plain"
                onClick={() => onFilter(disagreement(pair.bucket, pair.recorded) + within(store, found.range))}
              >
                <span class="number">{count(pair.steps)}</span> guessed {pair.bucket}, recorded{" "}
                {shortId(pair.recorded, LONGEST_NAME)}
              </button>
            </li>
          ))}
        </ul>
      )}
      {wrong.length > SHOWN && (
        <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "fewer" : `all ${count(wrong.length)} pairs`}
        </button>
      )}
    </div>
  );
}
