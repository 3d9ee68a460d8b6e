import { useMemo } from "preact/hooks";
import { shortId } from "../data/labels";
import type { Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import type { WaitingSplit } from "../data/model/waiting";
import { adapterOf, type Taker, type Takers, takersOf, tokenTakers } from "../data/takers";
import { count, milliseconds, percent, plural } from "../format";
import { focus } from "../state/moves";

const SHOWN = 6;

const HEADS: Record<Takers["what"], string> = {
  tokens: "Who took the tokens meanwhile",
  seats: "Who ran meanwhile",
  adapters: "Adapters that held the slots",
  overtook: "Admitted before it, though they came later",
};

/** The requests that had what a request waited for, most first. */
export function TakersSection({ store, split }: { store: TraceStore; split: WaitingSplit }) {
  const found = useMemo(() => takersOf(store, split), [store, split]);
  return (
    <>
      {found.map((takers) => (
        <section key={takers.what} aria-label={HEADS[takers.what]}>
          <h4>{HEADS[takers.what]}</h4>
          <p class="quiet">{summary(store, takers, split)}</p>
          <TakerList
            {...{ store, by: takers.by, unnamed: takers.unnamed > 0 ? restOf(takers) : null, row: rowOf(split) }}
            text={(taker) => amountOf(store, takers, taker)}
          />
        </section>
      ))}
    </>
  );
}

function rowOf(split: WaitingSplit): Row {
  return split.parts[0]?.firstRow ?? -1;
}

function summary(store: TraceStore, { what, steps, total, by }: Takers, { request }: WaitingSplit): string {
  switch (what) {
    case "tokens":
      return `${count(total)} tokens in ${plural(steps, "step")}, to ${plural(by.length, "request")}.`;
    case "seats":
      return `${plural(by.length, "request")} in ${milliseconds(total)}.`;
    case "adapters": {
      const own = adapterOf(store, request);
      return `${own ? `It needs ${shortId(own, 40)}. ` : ""}Others were loaded for ${milliseconds(total)}.`;
    }
    case "overtook":
      return `${plural(by.length, "request")} with ${count(total)} prompt tokens.`;
  }
}

function amountOf(store: TraceStore, { what }: Takers, { request, amount, share }: Taker): [string, string] {
  if (what === "tokens") return [`${count(amount)} tokens`, percent(share)];
  if (what !== "overtook") return [milliseconds(amount), percent(share)];
  const priority = store.requests.priority[request];
  return [`${count(amount)} tokens`, priority > -1e9 && priority !== 0 ? `priority ${count(priority)}` : ""];
}

const restOf = ({ unnamed, total }: Pick<Takers, "unnamed" | "total">): [string, string] => [
  `${count(unnamed)} tokens`,
  percent(unnamed / total),
];

interface TakerListProps {
  store: TraceStore;
  by: readonly Taker[];
  /** What others had whom the trace does not name. */
  unnamed: [string, string] | null;
  text(taker: Taker): [string, string];
  row: Row;
}

export function TakerList({ store, by, unnamed, text, row }: TakerListProps) {
  const rest = by.length - SHOWN;
  return (
    <ol class="stood-before">
      {by.slice(0, SHOWN).map((taker) => (
        <li key={taker.name}>
          {taker.request < 0 ? (
            <span class="id">{shortId(taker.name, 22)}</span>
          ) : (
            <button
              type="button"
              class="plain id"
              title="Look at this request"
              onClick={() => focus(Math.max(row, store.requests.firstRow[taker.request], 0), taker.request)}
            >
              {shortId(taker.name, 22)}
            </button>
          )}
          {text(taker).map((figure) => (
            <span key={figure} class="number">
              {figure}
            </span>
          ))}
        </li>
      ))}
      {rest > 0 && <li class="quiet">and {plural(rest, "other")}</li>}
      {unnamed && (
        <li class="quiet" title="The trace, with its bound on ids, names only the first of many who run">
          <span class="id">not named in the trace</span>
          {unnamed.map((figure) => (
            <span key={figure} class="number">
              {figure}
            </span>
          ))}
        </li>
      )}
    </ol>
  );
}

/** The requests that got the tokens of one step. */
export function StepTakers({ store, row }: { store: TraceStore; row: Row }) {
  const { by, total, unnamed } = tokenTakers(store, row);
  if (by.length === 0 && unnamed === 0) return null;
  return (
    <section aria-label="Who got the tokens">
      <h3>Who got the tokens</h3>
      <TakerList
        {...{ store, by, row, unnamed: unnamed > 0 ? restOf({ unnamed, total }) : null }}
        text={({ amount, share }) => [count(amount), percent(share)]}
      />
    </section>
  );
}
