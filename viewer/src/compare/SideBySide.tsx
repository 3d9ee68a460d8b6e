import { useLayoutEffect, useMemo } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import { spacerHeight } from "../charts/scroll";
import { MISSING, type Row } from "../data/model/columns";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { announce } from "../state/store";
import { LOOK_TITLES, lookAt, type SideName } from "./goTo";
import { useSideCursor } from "./sideCursor";
import { closely, nextDifference, pairs, type Side, sideOf } from "./sides";

interface SideBySideProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
  alignment: "step" | "time";
  /** A row of A that is to be shown. */
  wanted: { row: Row } | null;
}

const ROW = 24;
const ROWS = 18;
const ROOM = ROW * ROWS;
const SIGN = { same: "=", seen: "≈", differs: "≠", "only A": "◁", "only B": "▷" } as const;
const NUMBERS = ["running", "waiting", "tokens", "free"] as const;
const LINE_ID = "side-line";

/** Step beside step, by position in the list: as many as a screen shows, of millions if need be. Opens at the parting. */
export function SideBySide({ a, b, found, alignment, wanted }: SideBySideProps) {
  const list = useMemo(() => pairs(a, b, found, alignment), [a, b, a.rows, b.rows, found, alignment]);
  const parting = found.decision?.row ?? found.parting?.rowA ?? 0;
  const cursor = useSideCursor({
    ...{ count: list.count, lines: ROWS, line: ROW },
    start: list.ofA(wanted?.row ?? parting),
    onOpen: (position, other) => {
      const pair = list.at(position);
      const side = pair.b >= 0 && (other || pair.a < 0) ? "B" : "A";
      lookAt(side, side === "B" ? pair.b : pair.a);
    },
  });
  const { scroller, first, chosen } = cursor;
  // Before it is painted: the former line is never seen chosen.
  useLayoutEffect(() => {
    if (!wanted) return;
    cursor.choose(list.ofA(wanted.row));
    scroller.current?.focus({ preventScroll: true });
    scroller.current?.scrollIntoView({ block: "nearest" });
  }, [wanted]);
  const jump = (direction: 1 | -1) => {
    const position = nextDifference(a, b, list, chosen < 0 ? first - 1 : chosen, direction);
    if (position >= 0) cursor.choose(position);
    else announce(direction === 1 ? "No later difference" : "No earlier difference");
  };
  const shown = Array.from({ length: Math.min(ROWS, list.count - first) }, (_, index) => first + index);
  return (
    <section aria-labelledby="sides-title">
      <h3 id="sides-title">
        Step by step{" "}
        <button type="button" title="To the step before whose numbers differ" onClick={() => jump(-1)}>
          previous difference
        </button>{" "}
        <button type="button" title="To the next step whose numbers differ" onClick={() => jump(1)}>
          next difference
        </button>
      </h3>
      {/* biome-ignore lint/a11y/useSemanticElements: it is no group of fields */}
      <div
        class="sides own-keys"
        ref={scroller}
        role="group"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: one tab stop for all lines, among which the arrows walk
        tabIndex={0}
        aria-label="Steps of A and B beside each other: up and down for lines, Enter opens the step of A, Shift and Enter that of B"
        aria-activedescendant={shown.includes(chosen) ? LINE_ID : undefined}
        style={{ height: `${ROOM + ROW}px` }}
        onScroll={cursor.onScroll}
        onKeyDown={cursor.onKeyDown}
      >
        <table class="numbers">
          <thead>
            <tr>
              <Heads name="A" />
              <td />
              <Heads name="B" />
            </tr>
          </thead>
          <tbody>
            {shown.map((position) => (
              <Pair key={position} a={a} b={b} pair={list.at(position)} chosen={position === chosen} />
            ))}
          </tbody>
        </table>
        <div style={{ height: `${spacerHeight(list.count, ROOM, ROW) - ROOM}px` }} />
      </div>
      <p class="quiet">
        = the same, ≈ the same decision from another state, as from a queue in another order, ≠ other numbers or another
        decision, ◁ only in A, ▷ only in B; what differs is on hover. {count(list.count)} lines in all: arrows move,
        Enter opens the step of A, Shift+Enter that of B.
      </p>
    </section>
  );
}

function Heads({ name }: { name: string }) {
  return (
    <>
      <th scope="col" class="number">
        {name} step
      </th>
      <th scope="col">shown as</th>
      {NUMBERS.map((column) => (
        <th scope="col" class="number more" key={column}>
          {column}
        </th>
      ))}
    </>
  );
}

interface PairProps {
  a: TraceStore;
  b: TraceStore;
  pair: { a: number; b: number };
  chosen: boolean;
}

function Pair({ a, b, pair, chosen }: PairProps) {
  const left = sideOf(a, pair.a);
  const right = sideOf(b, pair.b);
  const { kind, what } = closely(a, b, pair);
  return (
    <tr class={chosen ? "chosen" : ""} id={chosen ? LINE_ID : undefined} aria-current={chosen ? "true" : undefined}>
      <Cells name="A" store={a} side={left} beside={right} />
      <td class={`sign ${kind === "same" || kind === "seen" ? "" : "apart"}`} title={what}>
        <span aria-hidden="true">{SIGN[kind]}</span>
        <span class="hidden-text">{what}</span>
      </td>
      <Cells name="B" store={b} side={right} beside={left} />
    </tr>
  );
}

interface CellsProps {
  name: SideName;
  store: TraceStore;
  side: Side | null;
  beside: Side | null;
}

function Cells({ name, store, side, beside }: CellsProps) {
  if (!side) {
    return (
      <>
        <td colSpan={2} />
        <td class="more" colSpan={NUMBERS.length} />
      </>
    );
  }
  const shown = store.shown[side.shown];
  return (
    <>
      <td class="number">
        <button
          type="button"
          class="plain number"
          tabIndex={-1}
          title={LOOK_TITLES[name]}
          onClick={() => lookAt(name, side.row)}
        >
          {count(side.step)}
        </button>
      </td>
      <td class="shown-as">
        {shown && (
          <>
            <Swatch family={shown.family} /> {shown.name}
          </>
        )}
      </td>
      {NUMBERS.map((column) => (
        <td key={column} class={`number more${beside && beside[column] !== side[column] ? " apart" : ""}`}>
          {side[column] === MISSING ? "–" : count(side[column])}
        </td>
      ))}
    </>
  );
}
