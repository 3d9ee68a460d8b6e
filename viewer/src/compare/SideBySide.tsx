import { useMemo, useRef, useState } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import { clampTop, scrollFor, spacerHeight, topAt } from "../charts/scroll";
import { MISSING } from "../data/model/columns";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { announce, focusRow } from "../state/store";
import { LOOK_TITLES, lookAt, type SideName } from "./goTo";
import { difference, nextDifference, type Pairs, pairs, type Side, sideOf } from "./sides";

interface SideBySideProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
  alignment: "step" | "time";
}

const ROW = 24;
const ROWS = 18;
const ROOM = ROW * ROWS;
const SIGN = { same: "=", differs: "≠", "only A": "◁", "only B": "▷" } as const;
const NUMBERS = ["running", "waiting", "tokens", "free"] as const;

/** Step beside step, by position in the list: as many as a screen shows, of millions if need be. */
export function SideBySide({ a, b, found, alignment }: SideBySideProps) {
  const list = useMemo(() => pairs(a, b, found, alignment), [a, b, a.rows, b.rows, found, alignment]);
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(() => start(list, found));
  const [chosen, setChosen] = useState(-1);
  const first = Math.floor(clampTop(list.count, top, ROOM, ROW));
  const move = (position: number) => {
    const next = clampTop(list.count, position, ROOM, ROW);
    setTop(next);
    if (scroller.current) scroller.current.scrollTop = scrollFor(list.count, next, ROOM, ROW);
  };
  const jump = (direction: 1 | -1) => {
    const position = nextDifference(a, b, list, chosen < 0 ? first - 1 : chosen, direction);
    if (position < 0) {
      announce(direction === 1 ? "No later difference" : "No earlier difference");
      return;
    }
    setChosen(position);
    move(position - 4);
  };
  const shown = Array.from({ length: Math.min(ROWS, list.count - first) }, (_, index) => first + index);
  return (
    <section aria-labelledby="sides-title">
      <h3 id="sides-title">
        Step by step{" "}
        <button type="button" onClick={() => jump(-1)}>
          previous difference
        </button>{" "}
        <button type="button" onClick={() => jump(1)}>
          next difference
        </button>
      </h3>
      <section
        class="sides"
        ref={scroller}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls has to be reached with the keyboard
        tabIndex={0}
        aria-label="Steps of A and B beside each other; scrolls"
        style={{ height: `${ROOM + ROW}px` }}
        onScroll={(event) => {
          const { scrollTop } = event.currentTarget;
          if (Math.abs(scrollTop - scrollFor(list.count, top, ROOM, ROW)) > 1.5)
            setTop(topAt(list.count, scrollTop, ROOM, ROW));
        }}
      >
        <table class="numbers">
          <thead>
            <tr>
              <Heads name="A" />
              <th scope="col" />
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
      </section>
      <p class="quiet">= the same, ≠ other numbers, ◁ only in A, ▷ only in B. {count(list.count)} lines in all.</p>
    </section>
  );
}

/** Opens at the parting, else at the step that is looked at. */
function start(list: Pairs, found: Comparison): number {
  const row = focusRow.peek() >= 0 ? focusRow.peek() : (found.parting?.rowA ?? 0);
  return Math.max(list.ofA(row) - 4, 0);
}

function Heads({ name }: { name: string }) {
  return (
    <>
      <th scope="col" class="number">
        {name} step
      </th>
      <th scope="col">shown as</th>
      {NUMBERS.map((column) => (
        <th scope="col" class="number" key={column}>
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
  const kind = difference(left, right);
  return (
    <tr class={chosen ? "chosen" : ""} aria-current={chosen ? "true" : undefined}>
      <Cells name="A" store={a} side={left} beside={right} />
      <td class={`sign ${kind === "same" ? "" : "apart"}`} title={kind}>
        <span aria-hidden="true">{SIGN[kind]}</span>
        <span class="hidden-text">{kind}</span>
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
  if (!side) return <td colSpan={6} />;
  const shown = store.shown[side.shown];
  return (
    <>
      <td class="number">
        <button type="button" class="plain number" title={LOOK_TITLES[name]} onClick={() => lookAt(name, side.row)}>
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
        <td key={column} class={`number${beside && beside[column] !== side[column] ? " apart" : ""}`}>
          {side[column] === MISSING ? "–" : count(side[column])}
        </td>
      ))}
    </>
  );
}
