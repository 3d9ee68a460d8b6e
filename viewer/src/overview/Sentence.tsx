import { useMemo } from "preact/hooks";
import type { Finding } from "../advice/rules";
import { isAtStepLimit } from "../data";
import { momentText } from "../data/clock";
import type { Range } from "../data/model/columns";
import type { Stretch } from "../data/model/pressure";
import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { partial } from "../data/partial";
import { mostHeld } from "../data/pressure";
import { spanOf } from "../data/since";
import type { StoreInside } from "../data/store";
import { TENANT_MEANING } from "../data/wording";
import { count, duration, figureOf, percent, plural } from "../format";
import { forgetPlaces } from "../shell/keptScroll";
import { Link } from "../shell/Link";
import { shareRead } from "../shell/Progress";
import { focus, showTab } from "../state/moves";
import { extra, filterText, focusRequest, LAST_KEY, type LoadState, selection, setExtra } from "../state/store";
import { change, showAdvice } from "../statistics/AdviceSection";
import { reason } from "../statistics/filters";
import { isCause } from "./causes";
import { type OtherIncident, spanWithin, worthSaying } from "./incidents";
import type { Found } from "./OverviewView";
import {
  culpritOf,
  cutShort,
  cutShortWords,
  ERRORS,
  type Guilty,
  isQuiet,
  type Named,
  priorities,
  reasonWords,
  rowsOf,
  sharedBy,
  unnamedWords,
  victimsIn,
} from "./words";

interface SentenceProps {
  store: TraceStore;
  range: Range;
  found: Found;
  settled: boolean;
  /** The trace is still read. */
  reading: LoadState | null;
  /** What is said may still change: it is not said as a verdict then, and nothing is advised. */
  provisional: boolean;
}

/** Of the time lost in a stretch: less for a second reason is left out. */
const WORTH_SAYING = 0.1;

/** The verdict: what was wrong, when, which check, who, and what would help. */
export function Sentence({ store, range, found, settled, reading, provisional }: SentenceProps) {
  const { statistics, pressure, stretches } = found;
  if (!settled || (!pressure && !statistics)) {
    return <p class="verdict-line quiet">{reading ? `${readingWords(reading)} …` : "Looking at the run …"}</p>;
  }
  const [worst] = stretches;
  const aborted = statistics ? cutShort(statistics.outcomes) : 0;
  const quiet = isQuiet(stretches, statistics);
  const guilty = worst && found.blame && culpritOf(store, worst, found.blame);
  return (
    <div class="verdict-line" role="status" aria-label="Verdict">
      <p>
        {provisional && <span class="reading">{reading ? readingWords(reading) : "Adding up"}; so far: </span>}
        {selection.value ? <span class="quiet">Of the selection: </span> : <LastSeconds />}
        {quiet ? (
          <strong>{quietWords(store, statistics, reading)}</strong>
        ) : (
          <Trouble store={store} found={found} guilty={guilty} />
        )}
        {statistics?.ttftSeconds && <> TTFT p99 is {figureOf(statistics.ttftSeconds, "p99")}.</>}
        {aborted > 0 && statistics && (
          <>
            {" "}
            <Link onClick={() => showRequests(ERRORS)}>
              <span class="wrong">
                {count(aborted)} of {plural(statistics.outcomes.arrived, "request")} were aborted, refused or failed (
                {percent(aborted / statistics.outcomes.arrived)})
              </span>
            </Link>
            <CutShort store={store} range={range} statistics={statistics} />.
          </>
        )}
      </p>
      <div class="verdict-next">
        {provisional ? <p class="quiet">What to change is said when all of it is read.</p> : <Ideas found={found} />}
        <p class="quiet">
          {namesTenant(found, guilty) && `${TENANT_MEANING}. `}
          <Whole store={store} range={range} />
        </p>
      </div>
    </div>
  );
}

/** A hash says little until one knows what it is of. */
function namesTenant({ blame, others }: Found, guilty: Guilty | null | undefined): boolean {
  const victims = blame?.victims;
  const keys = [guilty, ...others.map((other) => other.guilty)].map((one) => one?.group?.key);
  return [...keys, victims?.groups[0]?.key, victims?.parts[0]?.key].includes("tenant");
}

/** Of what is there: while steps are read, that nothing was found yet is no good news. */
function quietWords(store: TraceStore, statistics: Statistics | null, reading: LoadState | null): string {
  const progress = reading?.progress;
  if (!reading || progress?.file === "requests" || selection.value) {
    return `Nothing held requests back noticeably${statistics ? ` in ${duration(statistics.seconds)}` : ""}.`;
  }
  const { bytes, rows, steps } = store as StoreInside;
  const seconds = rows > 0 ? steps.ts[rows - 1] - steps.ts[0] : 0;
  // How long a packed file is unpacked is not known.
  const share = bytes <= (progress?.bytesRead ?? 0) ? bytes / (progress?.bytesTotal ?? 0) : 0;
  if (!(seconds > 0)) return "Nothing yet.";
  return `Nothing yet in the first ${duration(seconds)}${share > 0 ? ` of about ${duration(seconds / share)}` : ""}.`;
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

function CutShort({ store, range, statistics }: { store: TraceStore; range: Range; statistics: Statistics }) {
  const { first, last } = range;
  // The statistics are new when the trace has grown.
  return useMemo(() => <>{cutShortWords(store, { first, last })}</>, [store, first, last, statistics]);
}

interface Blamed extends Pick<SentenceProps, "store" | "found"> {
  guilty: Guilty | null;
}

/** What to change first. */
function Ideas({ found: { advice } }: Pick<Blamed, "found">) {
  if (!advice) return null;
  const [first] = advice;
  if (!first) return <p class="quiet">Nothing stands out that another setting would help.</p>;
  // Where some could be limited, or admitted later, a setting that gives all more room is as good.
  const said = advice.slice(0, isCause(first) ? 2 : 1);
  const others = advice.length - said.length;
  return (
    <>
      <span class="quiet">What to change: </span>
      <ol class="ideas">
        {said.map((finding, at) => (
          <li key={finding.rule}>
            {at > 0 && <span class="quiet">or </span>}
            <Link onClick={showAdvice}>{change(finding)}</Link>
            <span class="quiet">{whyWords(finding, at > 0 ? first : null)}</span>
            {others > 0 && at === said.length - 1 && (
              <>
                <span class="quiet"> · </span>
                <Link onClick={showAdvice}>{plural(others, "other idea")}</Link>
              </>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}

/** `. Why: requests wait while memory is free. At the worst 24 ran and ...`; of a further idea only what is wrong, if it is another. */
function whyWords({ symptom, basis }: Finding, first: Finding | null): string {
  if (first) return symptom === first.symptom ? "" : `: ${symptom}`;
  return `. Why: ${symptom}. ${basis}`.trim();
}

/** When it began and ended, when it was worst, which check, whom it held back, who had what was missing, and who waited. */
function Trouble({ store, found, guilty }: Blamed) {
  const [worst] = found.stretches;
  const clock = (ts: number) => momentText(store, ts);
  const [begin, end] = [clock(worst.begin), clock(worst.end)];
  const { run } = found;
  const own = { begun: worst.begin, over: worst.end };
  const span = run ? spanWithin(store, run, worst) : own;
  const ofRun = run && selection.value ? spanOf(store, run, worst) : span;
  const inRun = [clock(ofRun.begun), clock(ofRun.over)].join(" to ");
  const [begun, over] = [clock(span.begun), clock(span.over)];
  const all = begun === begin && over === end;
  const most = useMemo(
    () => mostHeld(store, rowsOf(store, { begin: span.begun, end: span.over }), worst.shown),
    [store, store.version, span.begun, span.over, worst.shown],
  );
  const rest = found.blame && guilty ? unnamedWords(store, worst, found.blame) : null;
  const shared = found.blame && !guilty && sharedBy(store, worst, found.blame);
  const ahead = found.blame && guilty && priorities(store, found.blame.victims, guilty.group);
  const victims = found.blame && victimsIn(found.blame);
  const select = () => {
    selection.value = rowsOf(store, worst);
  };
  return (
    <>
      <strong>
        From {!all && `${begun} to ${over}, worst from `}
        <Link onClick={select} title="Select this stretch">
          {begin} to {end}
        </Link>
        {all ? " " : ", "}
        {reasonWords(store, store.shown[worst.shown].name)} held back up to {plural(most, "request")}
      </strong>{" "}
      (<Loss store={store} worst={worst} all={all} />
      {found.late && "; the slowest 1 % of first tokens were waited for here"}
      {inRun !== [begun, over].join(" to ") && `; in the run it was so from ${inRun}`})
      {guilty && (
        <>
          : <Link onClick={() => showCulprit(store, guilty.who, worst)}>{guilty.who.words}</Link> {guilty.had}
          {guilty.sent}
          {rest && <span class="quiet"> ({rest})</span>}
          {ahead && `, let in first by their priority (${ahead[0]} before ${ahead[1]})`}
        </>
      )}
      {shared && `: ${shared}`}
      {victims && (
        <>
          ; {victims.before} <Link onClick={() => showWaiting(store, victims.filter, worst)}>{victims.words}</Link>
        </>
      )}
      .
      {worthSaying(found.others, worst, guilty).map((other) => (
        <Also key={other.stretch.begin} store={store} other={other} clock={clock} />
      ))}
    </>
  );
}

/** ` Also from 2:04 to 3:28 the token budget held back up to 37 requests: 24 requests of tenant x took 71 % of its tokens.` */
function Also({ store, other, clock }: { store: TraceStore; other: OtherIncident; clock(ts: number): string }) {
  const { stretch, begun, over, most, guilty, blame } = other;
  const shared = guilty ? null : sharedBy(store, stretch, blame);
  return (
    <>
      {" "}
      <strong>
        Also from{" "}
        <Link
          title="Select it: all figures are of it then"
          onClick={() => {
            selection.value = rowsOf(store, { begin: begun, end: over });
          }}
        >
          {clock(begun)} to {clock(over)}
        </Link>{" "}
        {reasonWords(store, store.shown[stretch.shown].name)} held back up to {plural(most, "request")}
      </strong>
      {guilty && (
        <>
          : <Link onClick={() => showCulprit(store, guilty.who, stretch)}>{guilty.who.words}</Link> {guilty.had}
          {guilty.sent}
        </>
      )}
      {shared && `: ${shared}`}.
    </>
  );
}

/** `3 h 56 min of waiting in the worst, of 4 h 30 min for all reasons`. */
function Loss({ store, worst: { lost, share, second }, all }: { store: TraceStore; worst: Stretch; all: boolean }) {
  const own = `${duration(share * lost)} of waiting${all ? "" : " in the worst"}`;
  if (duration(share * lost) === duration(lost)) return <>{own}</>;
  const next =
    second && second.share >= WORTH_SAYING
      ? `, ${percent(second.share)} of it for ${reasonWords(store, store.shown[second.shown].name)}`
      : "";
  return (
    <>
      {own}, of {duration(lost)} for all reasons{next}
    </>
  );
}

function showCulprit(store: TraceStore, who: Named, worst: Stretch): void {
  if (who.request >= 0) focus(Math.max(store.requests.firstRow[who.request], 0), who.request);
  else showThere(store, who.filter, worst);
}

/** Of some requests those that the stretch's reason held back in it, who waited longest first. */
function showWaiting(store: TraceStore, text: string, worst: Stretch): void {
  setExtra("lanes", "wait");
  setExtra("sort", "-waited");
  showThere(store, `${text} ${reason(store.shown[worst.shown].name)}`, worst);
}

/** Those of a stretch alone. */
export function showThere(store: TraceStore, text: string, stretch: Stretch): void {
  selection.value = rowsOf(store, stretch);
  showRequests(text);
}

export function showRequests(text: string): void {
  forgetPlaces();
  filterText.value = text;
  focusRequest.value = -1;
  showTab("requests");
}
