import { useMemo, useState } from "preact/hooks";
import { useRoving } from "../charts/roving";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { largest } from "../data/spread";
import { download } from "../export/download";
import { count } from "../format";
import { extra, setExtra } from "../state/store";
import { EntryLink } from "./EntryLink";
import { FASTER_TITLE } from "./FasterSummary";
import {
  change,
  type Entry,
  entriesOf,
  fasterCsv,
  type Group,
  groupsOf,
  MEASURES,
  type Measure,
  type Order,
  ordered,
} from "./faster";
import { timesText } from "./pair";

interface FasterTableProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

/** Lines at first, and on request. */
const FEW = 20;
const SHOWN = 200;

/** Job by job or request by request: how long each took and waited in A and in B; sorted by a click on a head. */
export function FasterTable({ a, b, found }: FasterTableProps) {
  const groups = groupsOf(a, b);
  const group = groups.find((name) => name === extra.value["who"]) ?? groups[0];
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  const [chosen, setOrder] = useState<Order | null>(null);
  const measures = MEASURES[group];
  const known = chosen && (chosen.of === "name" || measures.some(({ key }) => key === chosen.key));
  const order: Order = known ? chosen : { key: measures[0].key, of: "change", down: true };
  const entries = useMemo(() => ordered(entriesOf(found, group), order, text), [found, group, chosen, text]);
  return (
    <section aria-labelledby={FASTER_TITLE}>
      <h3 id={FASTER_TITLE} tabIndex={-1}>
        {group === "jobs" ? "Jobs" : "Requests"} side by side
      </h3>
      <p class="line">
        {groups.length > 1 && (
          <label>
            of each{" "}
            <select value={group} onChange={(event) => setExtra("who", event.currentTarget.value)}>
              <option value="jobs">job</option>
              <option value="requests">request</option>
            </select>
          </label>
        )}{" "}
        <input
          type="search"
          aria-label="Those whose name holds"
          placeholder="name"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />{" "}
        <button
          type="button"
          onClick={() => download(fasterCsv(entries, group), `${a.name}.against.${b.name}.${group}.csv`)}
        >
          save as CSV
        </button>{" "}
        <span class="quiet">
          B − A: less time in B has a minus. “cut”: not finished in one of the two.
          {all && entries.length > SHOWN && ` The first ${SHOWN} of ${count(entries.length)}.`}
        </span>
      </p>
      <Table a={a} group={group} entries={entries.slice(0, all ? SHOWN : FEW)} order={order} onOrder={setOrder} />
      {entries.length > FEW && (
        <button type="button" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "fewer" : `${count(Math.min(entries.length, SHOWN) - FEW)} more`}
        </button>
      )}
    </section>
  );
}

interface TableProps {
  a: TraceStore;
  group: Group;
  entries: readonly Entry[];
  order: Order;
  onOrder(order: Order): void;
}

const COLUMNS = [
  { of: "a", words: "A" },
  { of: "b", words: "B" },
  { of: "change", words: "B − A" },
] as const;

/** Up and down walk through the names. */
function Table({ a, group, entries, order, onOrder }: TableProps) {
  const roving = useRoving(entries.length);
  const [main] = MEASURES[group];
  const longest = largest(entries.flatMap(({ a, b }) => [a?.[main.key] ?? 0, b?.[main.key] ?? 0]));
  return (
    <div class="faster-box">
      <table class="numbers">
        <thead>
          <tr>
            <Head name={group.slice(0, -1)} column={{ key: "", of: "name" }} order={order} onOrder={onOrder} />
            <th scope="col" title={`A over B: how long it ${main.title}; the dark part is how long it waited`}>
              A over B
            </th>
            {MEASURES[group].map((measure) =>
              COLUMNS.map(({ of, words }) => (
                <Head
                  key={measure.key + of}
                  name={`${measure.title} ${words}`}
                  column={{ key: measure.key, of }}
                  meaning={measure.meaning}
                  order={order}
                  onOrder={onOrder}
                />
              )),
            )}
          </tr>
        </thead>
        <tbody onKeyDown={roving.onKeyDown}>
          {entries.map((entry, at) => (
            <tr key={entry.id}>
              <th scope="row">
                <EntryLink
                  {...{ a, group, entry }}
                  buttonRef={roving.ref(at)}
                  tabIndex={roving.tabIndex(at)}
                  onFocus={() => roving.onFocus(at)}
                />
              </th>
              <td aria-hidden="true" class="pair">
                <Bar values={entry.a} measure={main} longest={longest} />
                <Bar values={entry.b} measure={main} longest={longest} />
              </td>
              {MEASURES[group].map(({ key }) => (
                <Times key={key} entry={entry} measure={key} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface HeadProps {
  name: string;
  column: Pick<Order, "key" | "of">;
  meaning?: string;
  order: Order;
  onOrder(order: Order): void;
}

/** A click sorts: the longest first, names from the first; another turns it round. */
function Head({ name, column, meaning, order, onOrder }: HeadProps) {
  const chosen = order.key === column.key && order.of === column.of;
  const down = chosen ? !order.down : column.of !== "name";
  const sorted = order.down ? "descending" : "ascending";
  return (
    <th scope="col" class={column.of === "name" ? "" : "number"} aria-sort={chosen ? sorted : "none"}>
      <button type="button" class="plain" title={meaning} onClick={() => onOrder({ ...column, down })}>
        {name}
        <span aria-hidden="true">{chosen ? (order.down ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

/** As long as it took; the dark part is how long it waited, wherever in it. */
function Bar({ values, measure, longest }: { values: Entry["a"]; measure: Measure; longest: number }) {
  const took = values?.[measure.key] ?? Number.NaN;
  if (!values || !(took > 0) || !(longest > 0)) return <span />;
  return (
    <span class="took" style={{ width: `${(100 * took) / longest}%` }}>
      <span style={{ width: `${100 * Math.min(values["waited"] / took, 1)}%` }} />
    </span>
  );
}

/** In A, in B, and the difference, where both have it as a whole. */
function Times({ entry, measure }: { entry: Entry; measure: string }) {
  const { a, b, whole } = entry;
  const text = timesText(a?.[measure] ?? Number.NaN, b?.[measure] ?? Number.NaN, "latency");
  const by = change(entry, measure);
  return (
    <>
      <td class="number">{a ? text.a : "not there"}</td>
      <td class="number">{b ? text.b : "not there"}</td>
      <td class={`number verdict ${by < 0 ? "better" : by > 0 ? "worse" : ""}`}>
        {whole ? text.difference : a && b ? "cut" : "–"}
      </td>
    </>
  );
}
