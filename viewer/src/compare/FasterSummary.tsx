import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count, duration, percent, plural, signed } from "../format";
import { bounds, boundsText } from "../state/bounds";
import { setExtra } from "../state/store";
import { EntryLink } from "./EntryLink";
import { type Entry, entriesOf, extremes, type Group, groupsOf, MEASURES, totalsOf } from "./faster";
import { timesText } from "./pair";
import { changeText, verdictOf, workloadsDiffer } from "./verdict";

interface FasterSummaryProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

/** Names the section of the table, to which a link here leads. */
export const FASTER_TITLE = "faster-title";
const MOST = 3;

/** In a few lines: how many jobs and requests were faster in B, by how much together, and which most. */
export function FasterSummary({ a, b, found }: FasterSummaryProps) {
  return (
    <section class="faster" aria-label="Who was faster">
      <VerdictLine found={found} entries={entriesOf(found, "requests")} />
      <div class="columns">
        {groupsOf(a, b).map((group) => (
          <Sums key={group} a={a} group={group} entries={entriesOf(found, group)} />
        ))}
      </div>
    </section>
  );
}

/** By the requests: every trace has them, and no time counts twice. */
function VerdictLine({ found, entries }: { found: Comparison; entries: readonly Entry[] }) {
  const apart = workloadsDiffer(found.work);
  const told = verdictOf(entries, bounds.value);
  if (!told) return apart && <p class="winner">{apart}</p>;
  return (
    <>
      {apart && <p class="uneven">{apart}</p>}
      <p class="winner">
        <strong>{told.winner}</strong>, of the {plural(told.both, "request")} of both
        {told.cut > 0 && `; ${count(told.cut)} not finished in one of the two count as ≥`}.
      </p>
      <ul class="changes" aria-label="From A to B">
        {told.changes.map((change) => (
          <li key={change.name} class={change.sign > 0 ? "worse" : change.sign < 0 ? "better" : ""}>
            {changeText(change)}
          </li>
        ))}
        {told.goodput && (
          <li class={told.goodput.b < told.goodput.a ? "worse" : "better"}>
            within {boundsText(bounds.value)}: {percent(told.goodput.a)} to {percent(told.goodput.b)}
          </li>
        )}
      </ul>
      <Chain found={found} />
    </>
  );
}

const UNITS = {
  share: percent,
  tokens: count,
  count,
  seconds: duration,
} as const;

/** What leads there: cache hits, the work that is left, the time lost to it. */
function Chain({ found }: { found: Comparison }) {
  if (found.chain.length === 0) return null;
  return (
    <ol class="chain" aria-label="What changed on the way">
      {found.chain.map(({ name, a, b, unit }) => (
        <li key={name}>
          {unit === "seconds" ? `lost to ${name}` : name}{" "}
          <span class="number">
            {UNITS[unit](a)} → {UNITS[unit](b)}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Sums({ a, group, entries }: { a: TraceStore; group: Group; entries: readonly Entry[] }) {
  const measures = MEASURES[group];
  const { both, cut, faster, slower, sums } = totalsOf(entries, measures);
  const one = group.slice(0, -1);
  const left = cut > 0 ? ` ${plural(cut, one)} not finished in one of the two: not judged.` : "";
  const all = () => {
    setExtra("who", group);
    document.getElementById(FASTER_TITLE)?.focus();
  };
  return (
    <div>
      {both === 0 ? (
        <p>
          No {one} was finished in both.{left}
        </p>
      ) : (
        <>
          <p>
            <strong>
              {plural(faster, one)} faster in B, {count(slower)} slower
            </strong>
            {faster + slower < both && `, ${count(both - faster - slower)} as fast`}, of {count(both)} that both
            finished. Together, B against A:{" "}
            {measures.map(({ key, title, meaning }, at) => (
              <span key={key}>
                {at > 0 && ", "}
                <span class="most" title={meaning}>
                  {title} {signed(sums[key], duration)}
                </span>
              </span>
            ))}
            .{left}
          </p>
          <Most a={a} group={group} entries={entries} direction={-1} />
          <Most a={a} group={group} entries={entries} direction={1} />
        </>
      )}
      <button type="button" class="plain" onClick={all}>
        all {group} side by side
      </button>
    </div>
  );
}

interface MostProps {
  a: TraceStore;
  group: Group;
  entries: readonly Entry[];
  direction: 1 | -1;
}

function Most({ a, group, entries, direction }: MostProps) {
  const { key } = MEASURES[group][0];
  const found = extremes(entries, key, direction, MOST);
  if (found.length === 0) return null;
  return (
    <p>
      {direction < 0 ? "Gained most in B:" : "Lost most in B:"}{" "}
      {found.map((entry, at) => (
        <span key={entry.id}>
          {at > 0 && ", "}
          <span class="most">
            <EntryLink a={a} group={group} entry={entry} />{" "}
            {timesText(entry.a?.[key] ?? Number.NaN, entry.b?.[key] ?? Number.NaN, "latency").difference}
          </span>
        </span>
      ))}
    </p>
  );
}
