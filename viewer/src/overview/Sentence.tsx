import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { isAtStepLimit } from "../data";
import { shortId } from "../data/labels";
import type { Range } from "../data/model/columns";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { partial } from "../data/partial";
import { count, duration, milliseconds, percent, plural } from "../format";
import { focus, showTab } from "../state/moves";
import { extra, filterText, focusRequest, LAST_KEY, selection, setExtra } from "../state/store";
import { DIRECTIONS } from "../statistics/AdviceSection";
import { type Found, rowsOf } from "./OverviewView";
import {
  clockText,
  culpritOf,
  cutShort,
  cutShortWords,
  type Guilty,
  isQuiet,
  type Named,
  reasonWords,
  sharedBy,
} from "./words";

interface SentenceProps {
  store: TraceStore;
  range: Range;
  found: Found;
  settled: boolean;
}

/** Of its length: what began earlier than that before the worst is said. */
const MOST_EARLIER = 0.05;
/** Of the time lost in a stretch: less for a second reason is left out. */
const WORTH_SAYING = 0.1;

/** The verdict: what was wrong, when, which check, who, and what would help. */
export function Sentence({ store, range, found, settled }: SentenceProps) {
  const { statistics, pressure, stretches } = found;
  if (!settled || (!pressure && !statistics)) return <p class="verdict-line quiet">Looking at the run …</p>;
  const [worst] = stretches;
  const aborted = statistics ? cutShort(statistics.ends) : 0;
  const quiet = isQuiet(stretches, statistics);
  const guilty = worst && found.blame && culpritOf(store, worst, found.blame);
  return (
    <div class="verdict-line" role="status" aria-label="Verdict">
      <p>
        {selection.value ? <span class="quiet">Of the selection: </span> : <LastSeconds />}
        {quiet ? (
          <strong>
            Nothing held requests back noticeably{statistics ? ` in ${duration(statistics.seconds)}` : ""}.
          </strong>
        ) : (
          <Trouble store={store} found={found} guilty={guilty} />
        )}
        {statistics?.ttftSeconds && <> TTFT p99 is {milliseconds(statistics.ttftSeconds.p99)}.</>}
        {aborted > 0 && statistics && (
          <>
            {" "}
            <Link onClick={() => showRequests("status:aborted status:failed")}>
              <span class="wrong">
                {count(aborted)} of {plural(statistics.finished, "request")} were aborted or failed (
                {percent(aborted / statistics.finished)})
              </span>
            </Link>
            <CutShort store={store} range={range} statistics={statistics} />.
          </>
        )}
      </p>
      <p class="verdict-next">
        <Ideas store={store} found={found} guilty={quiet ? null : guilty} />
        <Whole store={store} range={range} />
      </p>
    </div>
  );
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
      {" "}
      Figures are of {steps} steps: {why}.
    </span>
  );
}

function CutShort({ store, range, statistics }: { store: TraceStore; range: Range; statistics: Statistics }) {
  const { first, last } = range;
  // The statistics are new when the trace has grown.
  return useMemo(() => <>{cutShortWords(store, { first, last })}</>, [store, first, last, statistics]);
}

interface Blamed extends Pick<SentenceProps, "store" | "found"> {
  guilty: Guilty | null;
}

/** What to change first. */
function Ideas({ store, found: { advice }, guilty }: Blamed) {
  if (!advice) return null;
  const [first, ...others] = advice;
  return (
    <>
      {(first || guilty?.couldWait) && <span class="quiet">What to change: </span>}
      {guilty?.couldWait && (
        <>
          let them wait instead: scheduling_policy priority
          {store.policy === "priority" ? "" : ` (now ${shortId(store.policy, 40)})`} and a later priority for them
          {first ? "; or " : "."}
        </>
      )}
      {first && (
        <>
          <Link onClick={() => showTab("statistics")}>
            {DIRECTIONS[first.direction]} {first.setting}
            {first.now === null || first.now === undefined ? "" : ` (now ${String(first.now).slice(0, 40)})`}
          </Link>
          <span class="quiet">. Why: {first.symptom}</span>
          {others.length > 0 && <span class="quiet"> · {plural(others.length, "other idea")} under Statistics</span>}
        </>
      )}
      {!first && !guilty?.couldWait && <span class="quiet">Nothing stands out that another setting would help.</span>}
    </>
  );
}

function Trouble({ store, found, guilty }: Blamed) {
  const [worst] = found.stretches;
  const { second } = worst;
  const origin = found.pressure?.origin ?? 0;
  const name = store.shown[worst.shown].name;
  const shared = found.blame && !guilty && sharedBy(store, worst, found.blame);
  const select = () => {
    selection.value = rowsOf(store, worst);
  };
  return (
    <>
      <strong>
        From{" "}
        <Link onClick={select} title="Select this stretch">
          {clockText(store, origin, worst.begin)} to {clockText(store, origin, worst.end)}
        </Link>{" "}
        {reasonWords(store, name)} held back up to {plural(Math.round(worst.most), "request")}
      </strong>{" "}
      ({duration(worst.lost)} of waiting
      {second &&
        second.share >= WORTH_SAYING &&
        `, ${percent(worst.share)} of it for this and ${percent(second.share)} for ${reasonWords(store, store.shown[second.shown].name)}`}
      {worst.begin - worst.since > MOST_EARLIER * (worst.end - worst.begin) &&
        `, building up since ${clockText(store, origin, worst.since)}`}
      )
      {guilty && (
        <>
          : <Link onClick={() => showCulprit(store, guilty.who)}>{guilty.who.words}</Link> {guilty.had}
        </>
      )}
      {shared && `: ${shared}`}.
    </>
  );
}

function showCulprit(store: TraceStore, who: Named): void {
  if (who.request >= 0) focus(Math.max(store.requests.firstRow[who.request], 0), who.request);
  else showRequests(who.filter);
}

export function showRequests(text: string): void {
  filterText.value = text;
  focusRequest.value = -1;
  showTab("requests");
}

export function Link({ onClick, title, children }: { onClick(): void; title?: string; children: ComponentChildren }) {
  return (
    <button type="button" class="plain link" {...(title ? { title } : {})} onClick={onClick}>
      {children}
    </button>
  );
}
