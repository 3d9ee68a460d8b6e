import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count, duration, plural, signed } from "../format";
import { setExtra } from "../state/store";
import { EntryLink } from "./EntryLink";
import { type Entry, entriesOf, extremes, type Group, groupsOf, MEASURES, totalsOf, verdict } from "./faster";
import { timesText } from "./pair";

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
      <Verdict entries={entriesOf(found, "requests")} />
      <div class="columns">
        {groupsOf(a, b).map((group) => (
          <Sums key={group} a={a} group={group} entries={entriesOf(found, group)} />
        ))}
      </div>
    </section>
  );
}

/** By the requests, end to end: every trace has them, and nobody's time counts twice. */
function Verdict({ entries }: { entries: readonly Entry[] }) {
  const told = verdict(entries, MEASURES.requests[0], "requests");
  if (!told) return null;
  return (
    <p class="winner">
      <strong>{told.winner}</strong>: {told.why}.
    </p>
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
