import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import { familyOf, isBounded, meaningOf, requestFigures } from "../data";
import { clockOf } from "../data/clock";
import { GROUP_KEYS, type Group, type GroupKey, groupsOf } from "../data/groups";
import { shortId } from "../data/labels";
import type { RequestFigures } from "../data/model/requestFigures";
import type { TraceStore } from "../data/model/trace";
import { thereIn } from "../data/requestTable";
import { TENANT_MEANING } from "../data/wording";
import { count, duration, figureOf, percent, plural } from "../format";
import { forgetPlaces } from "../shell/keptScroll";
import { bounds } from "../state/bounds";
import { engineName, engines, readEngines } from "../state/engines";
import { toggleTerm } from "../state/filter";
import { showEngine } from "../state/loader";
import { meantMask } from "../state/matching";
import { extra, filter, filterText, setExtra } from "../state/store";
import { useComputed } from "../statistics/useStatistics";
import { type Choice, ColumnChooser } from "./ColumnChooser";
import { both } from "./table";
import { SHOWN_KEY } from "./window";

/** In the address: `group=tenant`, and by which column groups are sorted. */
export const BY_KEY = "group";
const SORT_KEY = "groupsort";
const COLUMNS_KEY = "groupcolumns";
/** More groups are no overview. */
const SHOWN = 500;

interface GroupColumn extends Choice {
  value(group: Group): number;
  text(group: Group): string;
}

type Latency = "queue" | "ttft" | "tpot" | "e2e";

const time = (title: string, meaning: string, name: Latency, which: "p50" | "p99"): GroupColumn => ({
  ...{ key: title, title, meaning },
  value: (group) => group[name]?.[which] ?? Number.NaN,
  text: (group) => figureOf(group[name], which),
});
const number = (title: string, meaning: string, value: (group: Group) => number): GroupColumn => ({
  ...{ key: title, title, meaning, value },
  text: (group) => count(value(group)),
});

const COLUMNS: readonly GroupColumn[] = [
  number("requests", "requests of the group", (group) => group.requests),
  number("errors", "aborted, failed or refused", (group) => group.cutShort),
  {
    ...{ key: "waited", title: "waited", meaning: "time lost: how long its requests waited, in all" },
    value: (group) => group.waited,
    text: (group) => duration(group.waited),
  },
  {
    ...{
      key: "good",
      title: "good",
      meaning: "share served within every bound of the goodput (Statistics tab)",
    },
    value: (group) => group.good,
    text: (group) => percent(group.good),
  },
  time("TTFT p50", "arrival to first token, of half of them at most", "ttft", "p50"),
  time("TTFT p99", "arrival to first token", "ttft", "p99"),
  time("TPOT p50", "per token after the first", "tpot", "p50"),
  time("TPOT p99", "per token after the first", "tpot", "p99"),
  time("E2E p50", "arrival to end", "e2e", "p50"),
  time("E2E p99", "arrival to end", "e2e", "p99"),
  time("queue p99", "arrival to first scheduled", "queue", "p99"),
  number("prompt tokens", "tokens of all its prompts", (group) => group.promptTokens),
  number("output tokens", "tokens of all its answers", (group) => group.outputTokens),
  {
    ...{ key: "hit", title: "hit", meaning: "share of the prompt tokens that were found in a cache" },
    value: (group) => group.hit,
    text: (group) => percent(group.hit),
  },
  number("preempted", "how often its requests lost their blocks", (group) => group.preemptions),
];

interface Props {
  store: TraceStore;
  found: RequestFigures;
  lines: Int32Array;
  /** Of another engine's figures those that count. */
  linesOf(figures: RequestFigures, mask: Uint8Array | null): Int32Array;
  /** Of the clock, what is selected; null: all. */
  span: { begin: number; end: number } | null;
  /** Behind the count. */
  children?: ComponentChildren;
}

/** All requests of an engine. */
const rankKey = (name: string): GroupKey => ({ key: "rank", text: () => name });

/** Counts, percentiles and time lost of the requests that the filter means, by what they have in common. */
export function GroupTable({ store, found, lines, linesOf, span, children }: Props) {
  const asked = extra.value[BY_KEY];
  const others = engines.value;
  const name = engineName.value;
  const keys = useMemo(() => (name ? [rankKey(name), ...GROUP_KEYS] : GROUP_KEYS), [name]);
  const by = useMemo(() => keys.find(({ key }) => key === asked) ?? usual(store, found), [keys, store, found, asked]);
  const byRank = by.key === "rank";
  const wanted = filter.value;
  const within = bounds.value;
  const beside = useComputed<Group[]>(
    async (signal) => {
      const groups: Group[] = [];
      for (const { name: other, store: each } of byRank ? others : []) {
        if (!each) continue;
        const figures = await requestFigures(each, signal);
        const { rowAt } = clockOf(each);
        const rows = span && { first: rowAt(span.begin), last: rowAt(span.end) };
        const there = rows && thereIn(each, rows);
        const counted = linesOf(figures, both(await meantMask(each, wanted, signal, rows), there));
        groups.push(...groupsOf(each, figures, counted, rankKey(other), within));
      }
      return groups;
    },
    [others, byRank, wanted, linesOf, span?.begin, span?.end, within],
    0,
  ).value;
  const [, minus, title] = /^(-?)(.*)$/.exec(extra.value[SORT_KEY] ?? "-waited") ?? [];
  const known = useMemo(() => COLUMNS.filter(({ title }) => title !== "good" || isBounded(within)), [within]);
  const chosen = extra.value[COLUMNS_KEY];
  const columns = useMemo(() => {
    const kept = chosen?.split(",");
    return known.filter(({ key }) => !kept || kept.includes(key));
  }, [known, chosen]);
  const column = known.find((one) => one.title === title);
  const shown = useMemo(() => groupsOf(store, found, lines, by, within), [store, found, lines, by, within]);
  const groups = useMemo(() => (byRank ? [...shown, ...(beside ?? [])] : shown), [byRank, shown, beside]);
  const sorted = useMemo(() => {
    if (!column) return groups;
    const value = (group: Group) =>
      Number.isNaN(column.value(group)) ? Number.NEGATIVE_INFINITY : column.value(group);
    return [...groups].sort((a, b) => (minus ? -1 : 1) * (value(a) - value(b)));
  }, [groups, column, minus]);
  return (
    <>
      <div class="table-sum">
        <label>
          group by{" "}
          <select value={by.key} onChange={(event) => setExtra(BY_KEY, event.currentTarget.value)}>
            {keys.map(({ key }) => (
              <option key={key}>{key}</option>
            ))}
          </select>
        </label>
        {plural(groups.length, "group")} of {plural(byRank ? total(groups) : lines.length, "request")} {children}
        {groups.length > SHOWN && `; ${SHOWN} are shown`}
        {byRank && others.some((each) => !each.store) && (
          <button type="button" onClick={() => void readEngines()}>
            with {plural(others.length, "other engine")}
          </button>
        )}
        <ColumnChooser all={known} shown={columns} kept={COLUMNS_KEY} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls has to be reached with the keyboard */}
      <section class="group-table" tabIndex={0} aria-label="Groups of requests; scrolls">
        <table class="numbers">
          <thead>
            <tr>
              <th scope="col" title={by.key === "tenant" ? TENANT_MEANING : undefined}>
                {by.key}
              </th>
              <th scope="col">mostly for</th>
              {columns.map((one) => {
                const chosen = one === column;
                const next = `${chosen && minus ? "" : "-"}${one.title}`;
                return (
                  <th
                    key={one.title}
                    scope="col"
                    class="number"
                    aria-sort={chosen ? (minus ? "descending" : "ascending") : "none"}
                  >
                    <button type="button" class="plain" title={one.meaning} onClick={() => setExtra(SORT_KEY, next)}>
                      {one.title}
                      <span aria-hidden="true">{chosen ? (minus ? " ↓" : " ↑") : ""}</span>
                    </button>
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, SHOWN).map((group) => (
              <tr key={group.name}>
                <th scope="row">
                  <button
                    type="button"
                    class="plain id"
                    disabled={group.term === null}
                    title="Show its requests"
                    onClick={() => showGroup(by, group)}
                  >
                    {shortId(group.name, 34)}
                  </button>
                </th>
                <td title={group.reason && meaningOf(group.reason)}>
                  {group.reason && <Swatch family={familyOf(group.reason)} />} {shortId(group.reason, 24)}
                </td>
                {columns.map((one) => (
                  <td key={one.title} class={one.title === "errors" && group.cutShort > 0 ? "number wrong" : "number"}>
                    {one.text(group)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}

function showGroup(by: GroupKey, { name, term }: Group): void {
  forgetPlaces();
  if (by.key === "rank") {
    const other = engines.peek().find((each) => each.name === name);
    if (other) showEngine(other);
    setExtra(SHOWN_KEY, "table");
    return;
  }
  const toggled = toggleTerm(filterText.value, by.key as "job", term ?? "");
  if (toggled.length > filterText.value.length) filterText.value = toggled;
  setExtra(SHOWN_KEY, "table");
}

const total = (groups: readonly Group[]) => groups.reduce((sum, { requests }) => sum + requests, 0);

/** The first key by which the requests differ. */
function usual(store: TraceStore, found: RequestFigures): GroupKey {
  const all = Int32Array.from({ length: found.count }, (_, index) => index);
  return GROUP_KEYS.find((key) => groupsOf(store, found, all, key).length > 1) ?? GROUP_KEYS[0];
}
