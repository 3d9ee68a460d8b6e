import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Swatch } from "../charts/Swatch";
import { clampTop, scrollFor, spacerHeight, topAt } from "../charts/scroll";
import { touches } from "../charts/touches";
import { useSize } from "../charts/useSize";
import { familyOf, isBounded, meaningOf, requestFigures } from "../data";
import { clockOf } from "../data/clock";
import { shortId } from "../data/labels";
import type { RequestFigures } from "../data/model/requestFigures";
import type { TraceStore } from "../data/model/trace";
import { thereIn } from "../data/requestTable";
import { STATUSES, type Status, WRONG } from "../data/status";
import { download } from "../export/download";
import { duration, plural } from "../format";
import { bounds, boundsText, OUTCOME_KEY } from "../state/bounds";
import { focus } from "../state/moves";
import { extra, focusRequest, revision, setExtra } from "../state/store";
import { takeWish } from "../state/wish";
import { useComputed } from "../statistics/useStatistics";
import { ColumnChooser } from "./ColumnChooser";
import { GroupTable } from "./GroupTable";
import { OfPart, partOf } from "./OfPart";
import { both, columnsOf, ordered, outcomeTest, type Sorting, sortingOf, type TableColumn, tableCsv } from "./table";
import { useMeant } from "./useMeant";

/** As tall as a finger needs on a touch screen. */
const ROW = touches() ? 32 : 26;
const ID_CHARACTERS = 34;

/** Every request in figures, sorted by a click on a head, opened by a click on a line; or groups of them. */
export function RequestTable({ store, grouped }: { store: TraceStore; grouped: boolean }) {
  const { value: found, failure } = useComputed<RequestFigures>(
    (signal) => requestFigures(store, signal),
    [store, revision.value],
    0,
  );
  if (failure) return <p role="alert">The table could not be made: {failure}</p>;
  if (!found) return <p class="quiet">Adding up why each request waited …</p>;
  return <Lines store={store} found={found} grouped={grouped} />;
}

/** In the address: the columns that are shown, other than the usual ones. */
const COLUMNS_KEY = "columns";

function Lines({ store, found, grouped }: { store: TraceStore; found: RequestFigures; grouped: boolean }) {
  const sorting = sortingOf(extra.value["sort"]);
  const part = partOf(store);
  const filtered = useMeant(store, part);
  const meant = useMemo(
    () => both(filtered, part && thereIn(store, part)),
    [filtered, store, found, part?.first, part?.last],
  );
  const all = useMemo(() => columnsOf(store, found), [store, found]);
  const asked = extra.value[COLUMNS_KEY];
  const columns = useMemo(() => {
    const keys = asked?.split(",");
    return all.filter(({ key, rare }) => key === "request" || (keys ? keys.includes(key) : !rare));
  }, [all, asked]);
  const bounded = bounds.value;
  const outcome = extra.value[OUTCOME_KEY];
  const linesOf = useCallback(
    (figures: RequestFigures, mask: Uint8Array | null) =>
      ordered(figures, undefined, false, mask, outcomeTest(figures, bounded, outcome)),
    [bounded, outcome],
  );
  const lines = useMemo(
    () =>
      ordered(
        found,
        all.find(({ key }) => key === sorting.key),
        sorting.down,
        meant,
        outcomeTest(found, bounded, outcome),
      ),
    [found, all, sorting.key, sorting.down, meant, bounded, outcome],
  );
  if (grouped) {
    const clock = clockOf(store);
    const span = part && clock.timed ? { begin: clock.at(part.first), end: clock.at(part.last + 1) } : null;
    return (
      <GroupTable {...{ store, found, lines, linesOf, span }}>
        <OfPart part={part !== null} />
      </GroupTable>
    );
  }
  const ending = lines.length < found.request.length ? ".filtered" : "";
  return (
    <>
      <div class="table-sum">
        {plural(lines.length, "request")}, {duration(sum(found, lines))} waited in all <OfPart part={part !== null} />
        <button
          type="button"
          disabled={lines.length === 0}
          onClick={() => download(tableCsv(store, found, lines), `${store.name}${ending}.requests.csv`)}
        >
          save as CSV
        </button>
        {isBounded(bounded) && <OutcomeSwitch outcome={outcome} />}
        <ColumnChooser all={all.slice(1)} shown={columns} kept={COLUMNS_KEY} />
      </div>
      <Grid store={store} found={found} columns={columns} lines={lines} sorting={sorting} />
    </>
  );
}

/** Only the requests that met every bound, or only those that missed one. */
function OutcomeSwitch({ outcome }: { outcome: string | undefined }) {
  return (
    <label title="By the bounds of the goodput, which the Statistics tab sets; requests that had not ended are neither.">
      {boundsText(bounds.value)}:{" "}
      <select
        value={outcome === "met" || outcome === "missed" ? outcome : ""}
        onChange={(event) => setExtra(OUTCOME_KEY, event.currentTarget.value)}
      >
        <option value="">all requests</option>
        <option value="met">met</option>
        <option value="missed">missed</option>
      </select>
    </label>
  );
}

function sum(found: RequestFigures, lines: Int32Array): number {
  return lines.reduce((total, index) => total + (found.waited[index] || 0), 0);
}

interface GridProps {
  store: TraceStore;
  found: RequestFigures;
  columns: readonly TableColumn[];
  lines: Int32Array;
  sorting: Sorting;
}

/** As many lines as fit, of a million if need be. */
function Grid({ store, found, columns, lines, sorting }: GridProps) {
  const scroller = useRef<HTMLElement>(null);
  const { width, height } = useSize(scroller);
  const [top, setTop] = useState(0);
  const [, draw] = useState(0);
  const room = Math.max(height - ROW, ROW);
  useEffect(() => {
    if (takeWish("table")) scroller.current?.focus();
  }, []);
  const first = Math.floor(clampTop(lines.length, top, room, ROW));
  const shown = lines.subarray(first, first + Math.ceil(room / ROW));
  const whole = Math.floor(room / ROW);
  const onArrow = useArrows(scroller, lines.length, (line) => {
    const place = line < first ? line : Math.max(top, line + 1 - whole);
    if (scroller.current) scroller.current.scrollTop = scrollFor(lines.length, place, room, ROW);
    setTop(place);
    draw((count) => count + 1);
  });
  useEffect(() => showSorted(scroller.current), [sorting.key, width, shown.length]);
  return (
    <section
      class="request-table"
      ref={scroller}
      style={{ "--row": `${ROW}px` }}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls has to be reached with the keyboard
      tabIndex={0}
      aria-label="Requests; scrolls"
      onKeyDown={onArrow}
      onScroll={(event) => {
        const { scrollTop } = event.currentTarget;
        if (Math.abs(scrollTop - scrollFor(lines.length, top, room, ROW)) > 1.5)
          setTop(topAt(lines.length, scrollTop, room, ROW));
      }}
    >
      <table class="numbers" aria-rowcount={lines.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.key} column={column} sorting={sorting} />
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from(shown, (index, at) => (
            <Line key={index} store={store} found={found} columns={columns} index={index} position={first + at} />
          ))}
        </tbody>
      </table>
      <div style={{ height: `${spacerHeight(lines.length, room, ROW) - room}px` }} />
    </section>
  );
}

/** ↑ and ↓ go from the request of one line to that of its neighbour; `show` draws a line that is not drawn yet. */
function useArrows(scroller: { current: HTMLElement | null }, count: number, show: (line: number) => void) {
  const wanted = useRef<number | null>(null);
  useLayoutEffect(() => {
    const button = scroller.current?.querySelector<HTMLElement>(`tr[aria-rowindex="${wanted.current}"] button`);
    if (!button) return;
    wanted.current = null;
    button.focus({ preventScroll: true }); // the lines stand still while the region scrolls, which browsers misjudge
  });
  return (event: KeyboardEvent): void => {
    const line = event.target instanceof Element ? event.target.closest("tbody tr") : null;
    if (!line || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
    event.preventDefault();
    const row = Number(line.ariaRowIndex) + (event.key === "ArrowDown" ? 1 : -1);
    if (row < 2 || row > count + 1) return;
    wanted.current = row;
    show(row - 2);
  };
}

/** The column by which the lines are sorted has to be seen, also when the panel takes room. */
function showSorted(scroller: HTMLElement | null): void {
  const head = scroller?.querySelector<HTMLElement>("[aria-sort$=ending]");
  if (!scroller || !head) return;
  const beyond = head.offsetLeft + head.offsetWidth - scroller.scrollLeft - scroller.clientWidth;
  if (beyond > 0) scroller.scrollLeft += beyond;
}

function Head({ column, sorting }: { column: TableColumn; sorting: Sorting }) {
  const chosen = sorting.key === column.key;
  const { words } = column;
  const next = chosen ? !sorting.down : !words;
  return (
    <th
      scope="col"
      class={words ? column.key : "number"}
      aria-sort={chosen ? (sorting.down ? "descending" : "ascending") : "none"}
    >
      <button
        type="button"
        class="plain"
        title={column.meaning}
        onClick={() => setExtra("sort", `${next ? "-" : ""}${column.key}`)}
      >
        {column.title}
        <span aria-hidden="true">{chosen ? (sorting.down ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

interface LineProps {
  store: TraceStore;
  found: RequestFigures;
  columns: readonly TableColumn[];
  index: number;
  position: number;
}

function Line({ store, found, columns, index, position }: LineProps) {
  const request = found.request[index];
  const open = () => focus(Math.max(store.requests.firstRow[request], 0), request);
  return (
    <tr class={focusRequest.value === request ? "chosen" : ""} aria-rowindex={position + 2} onClick={open}>
      {columns.map((column) => {
        const text = column.text(index);
        if (column.key === "request") {
          return (
            <th scope="row" key={column.key} class="request">
              <button type="button" class="plain id" title={shortId(text, 400)} onClick={open}>
                {shortId(text, ID_CHARACTERS)}
              </button>
            </th>
          );
        }
        if (column.key === "status") {
          const bad = WRONG.has(text as Status);
          return (
            <td key={column.key} class={bad ? "status wrong" : "status"} title={STATUSES[text as Status]}>
              {bad && <span aria-hidden="true">✕ </span>}
              {text}
            </td>
          );
        }
        if (column.key === "reason") {
          return (
            <td key={column.key} class="reason" title={text && meaningOf(text)}>
              {text && <Swatch family={familyOf(text)} />} {shortId(text, 24)}
            </td>
          );
        }
        return (
          <td
            key={column.key}
            class={column.words ? "" : "number"}
            title={column.words ? shortId(text, 400) : undefined}
          >
            {column.words ? shortId(text, 24) : text}
          </td>
        );
      })}
    </tr>
  );
}
