import { isAtStepLimit } from "../data";
import { endOfRow } from "../data/lives";
import type { Range } from "../data/model/columns";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { partial } from "../data/partial";
import { rowsOf } from "../data/pressure";
import { TENANT_MEANING } from "../data/wording";
import { count, duration, percent, plural } from "../format";
import { Link } from "../shell/Link";
import { shareRead } from "../shell/Progress";
import { extra, LAST_KEY, type LoadState, selection, setExtra } from "../state/store";
import type { Computed } from "../statistics/useStatistics";
import { type Answer, filterOf, HOW_TO_GET } from "./answer";
import { cutShort, ERRORS, showRequests } from "./requests";

interface SentenceProps {
  store: TraceStore;
  range: Range;
  statistics: Statistics | null;
  answer: Computed<Answer | null>;
  /** The trace is still read. */
  reading: LoadState | null;
}

/** What was wrong, when, whose it was, and what would help: in the words of the package. */
export function Sentence({ store, range, statistics, answer: { value, busy, failure }, reading }: SentenceProps) {
  const aborted = statistics ? cutShort(statistics.outcomes) : 0;
  return (
    <div class="verdict-line" role="status" aria-label="Verdict" aria-busy={busy}>
      <p>
        {reading && <span class="reading">{readingWords(reading)} … </span>}
        {selection.value ? <span class="quiet">Of the selection: </span> : <LastSeconds />}
        {value && <strong>{value.sentence}</strong>}
        {!value && <span class="quiet">{failure ?? (busy ? "Looking at the run …" : HOW_TO_GET)}</span>}
        {aborted > 0 && statistics && (
          <>
            {" "}
            <Link onClick={() => showRequests(ERRORS)}>
              <span class="wrong">
                {count(aborted)} of {plural(statistics.outcomes.arrived, "request")} were aborted, refused or failed (
                {percent(aborted / statistics.outcomes.arrived)})
              </span>
            </Link>
            .
          </>
        )}
      </p>
      {value && <Places store={store} answer={value} />}
      <div class="verdict-next">
        {value && value.remedies.length > 0 && (
          <ol class="ideas" aria-label="What would help">
            {value.remedies.map(({ title, evidence, price, is_tried }) => (
              <li key={title} title={evidence}>
                {title} <span class="quiet">({is_tried ? "replayed, and it helped" : "not tried"})</span>
                {price && <span class="quiet">; the price: {price}</span>}
              </li>
            ))}
          </ol>
        )}
        <p class="quiet">
          {value?.causes.some(({ whose }) => whose?.kind === "tenant") && `${TENANT_MEANING}. `}
          <Whole store={store} range={range} />
        </p>
      </div>
    </div>
  );
}

/** From a cause to its steps, and to the requests that had what was short. */
function Places({ store, answer: { causes } }: { store: TraceStore; answer: Answer }) {
  const known = causes.filter((cause) => cause.since_ts !== null);
  if (known.length === 0) return null;
  return (
    <p class="verdict-next">
      {known.map((cause) => {
        const end = cause.until_ts ?? endOfRow(store, store.rows - 1);
        const rows = rowsOf(store, { begin: cause.since_ts ?? 0, end });
        const { whose } = cause;
        return (
          <span key={cause.code}>
            <Link
              title="Select this stretch: all figures are of it then"
              onClick={() => {
                selection.value = rows;
              }}
            >
              {cause.code.replaceAll("_", " ")}: its steps
            </Link>
            {whose && (
              <>
                , <Link onClick={() => showRequests(filterOf(whose), rows)}>its requests</Link>
              </>
            )}{" "}
          </span>
        );
      })}
    </p>
  );
}

/** `Reading, 25 %`. */
function readingWords(reading: LoadState): string {
  const share = shareRead(reading);
  const what = reading.progress?.file === "requests" ? "Reading the request records" : "Reading";
  return share === null ? what : `${what}, ${percent(share)}`;
}

/** Of a run that is watched, only its end counts. */
function LastSeconds() {
  const seconds = Number(extra.value[LAST_KEY] || Number.NaN);
  if (!(seconds > 0)) return null;
  return (
    <span class="quiet">
      Of the last {duration(seconds)} (<Link onClick={() => setExtra(LAST_KEY, "")}>whole run</Link>):{" "}
    </span>
  );
}

/** The trace is not the whole run: figures are of what is there. */
function Whole({ store, range }: { store: TraceStore; range: Range }) {
  const ends = partial(store);
  if (!ends && !store.notes.cutOff) return null;
  const steps = count(range.last - range.first + 1);
  const why = isAtStepLimit(store) ? "the trace ends at its step limit" : "the trace is not whole";
  return (
    <span class="wrong" title={ends ?? ""}>
      Figures are of {steps} steps: {why}.
    </span>
  );
}
