/** The Timeline tab: the run along its clock; zoomed in, one row per step. */

import { useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { requestFigures } from "../data";
import type { Row } from "../data/model/columns";
import type { Pill } from "../data/model/moment";
import type { TraceStore } from "../data/model/trace";
import { usePicture } from "../overview/picture";
import { Tracks } from "../overview/Tracks";
import { keepEnd, quietly, sticks } from "../state/live";
import { fit, focus, pan, setRoom, setSlack, showRange, zoom } from "../state/moves";
import { focusRequest, focusRow, matches, revision, selection, themeName, trace, view } from "../state/store";
import { useComputed } from "../statistics/useStatistics";
import { FocusedRow } from "./FocusedRow";
import * as frame from "./frame";
import { type Column, FULL_HEIGHT, TEXT_HEIGHT, yOf } from "./geometry";
import { startPainting } from "./paint";
import { Painter } from "./painter";
import { usePointer } from "./pointer";
import { Scrollbar } from "./Scrollbar";
import "./timeline.css";

/** Narrower columns are headed by one word. */
const QUEUE_HEAD = 110;
const TIMES = "Seconds since the first step, and since the one before";
const ROW_ID = "focused-step";

export function Timeline() {
  const store = trace.value;
  return store ? <Rows store={store} /> : null;
}

function Rows({ store }: { store: TraceStore }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const painter = useMemo(() => new Painter(), []);
  const hint = useSignal("");
  usePointer(stage, painter, hint);
  useEffect(() => followSize(stage.current), []);
  useEffect(() => (canvas.current ? startPainting(canvas.current, painter) : undefined), [painter]);
  useSignalEffect(keepInPlace);
  useFilterJumps();
  return (
    <div class="timeline">
      <div class="grid-frame">
        {!frame.readable.value && <TracksInView store={store} />}
        <div
          class="grid"
          inert={!frame.readable.value}
          role="grid"
          aria-label="Steps of the run"
          aria-rowcount={frame.axis.value.count + 1}
          aria-colcount={5}
          aria-activedescendant={frame.geometry.value.open ? ROW_ID : undefined}
          aria-describedby="timeline-keys"
          tabIndex={0}
        >
          <Heads columns={frame.columns.value} />
          <div class="stage" ref={stage} title={hint.value} role="presentation">
            <canvas ref={canvas} />
            <Opened store={store} painter={painter} />
            {frame.axis.value.count === 0 && <Nothing />}
          </div>
        </div>
        <Scrollbar />
      </div>
      <p id="timeline-keys" class="hidden-text">
        Full stop and comma move from step to step, n to the next with the same reason, question mark lists all keys.
      </p>
    </div>
  );
}

/** Requests whose tokens have a colour of their own. */
const TAKERS = 6;

/** More steps than can be read: the same along the clock, from left to right. */
function TracksInView({ store }: { store: TraceStore }) {
  const changed = revision.value;
  const shown = view.value;
  const wish = { slices: frame.windowRows.value, takers: TAKERS, byRows: true };
  const found = usePicture(store, changed, shown, wish);
  const requests = useComputed((signal) => requestFigures(store, signal), [store, changed], 0).value;
  const open = (row: Row) => {
    focus(row, -1);
    frame.showReadable();
  };
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls has to be reached with the keyboard
    <section class="tracks-in-view" tabIndex={0} aria-label="The steps in view along the clock; scrolls">
      <Tracks
        store={store}
        found={{ pressure: found?.pressure ?? null, stretches: [], requests }}
        takers={found?.takers ?? []}
        navigation={{ view: shown, zoom, pan, whole: fit }}
        theme={themeName.value}
        selection={selection.value}
        onStep={open}
      >
        {focusRow.value >= 0 && (
          <button type="button" title="Rows about the chosen step (or a double click)" onClick={frame.showReadable}>
            rows of this step
          </button>
        )}
      </Tracks>
    </section>
  );
}

function Nothing() {
  return (
    <p class="nothing" role="status">
      No step passes the filter. Press <kbd>/</kbd> to change it.
    </p>
  );
}

function Heads({ columns }: { columns: readonly Column[] }) {
  const queue = (name: string, width: number) => (width < QUEUE_HEAD ? name : `${name} queue`);
  const titles: Record<Column["name"], string> = {
    step: "step",
    ts: "ts (+Δ)",
    batch: "batch",
    running: queue("running", columns[3].width),
    waiting: queue("waiting", columns[4].width),
  };
  return (
    <div class="heads" role="row" aria-rowindex={1}>
      {columns
        .filter(({ width }) => width > 0)
        .map(({ name, width }) => (
          <div
            key={name}
            role="columnheader"
            class={name}
            title={name === "ts" ? TIMES : titles[name]}
            style={{ width: `${width}px` }}
          >
            {titles[name]}
          </div>
        ))}
    </div>
  );
}

function Opened({ store, painter }: { store: TraceStore; painter: Painter }) {
  revision.value;
  const { open, rowHeight, height } = frame.geometry.value;
  const onHeight = useCallback((pixels: number) => {
    frame.openHeight.value = pixels;
    setSlack(frame.slackPlaces());
  }, []);
  const onPill = useCallback((pill: Pill) => {
    focusRequest.value = focusRequest.peek() === pill.request ? -1 : pill.request;
  }, []);
  if (!open) return null;
  const top = yOf(frame.geometry.value, open.place);
  if (top > height || top < -Math.max(height, open.extra + rowHeight)) return null;
  const row = focusRow.value;
  const { requests } = matches.value;
  return (
    <FocusedRow
      key={row}
      id={ROW_ID}
      content={painter.contents.get(store, row)}
      reason={store.shown[store.steps.shown[row]].name}
      columns={frame.columns.value}
      rowIndex={open.place}
      top={top}
      least={Math.max(rowHeight, FULL_HEIGHT)}
      most={Math.max(0.6 * height, FULL_HEIGHT)}
      meant={requests ? (request) => requests[request] === 1 : null}
      onHeight={onHeight}
      onPill={onPill}
    />
  );
}

/** The first picture shows full rows; later sizes keep the height of rows that can be read. */
function followSize(stage: HTMLElement | null): (() => void) | undefined {
  if (!stage) return undefined;
  const observer = new ResizeObserver(() => {
    const before = frame.geometry.peek();
    const readable = before.height > 0 && before.rowHeight >= TEXT_HEIGHT;
    quietly(() => {
      frame.width.value = stage.clientWidth;
      frame.height.value = stage.clientHeight;
      setRoom(stage.clientHeight / FULL_HEIGHT);
      if (readable && !matches.peek().rows)
        frame.showPlaces(before.top, before.top + stage.clientHeight / before.rowHeight);
      if (readable && sticks()) keepEnd();
    });
  });
  observer.observe(stage);
  return () => observer.disconnect();
}

/** The trace that was shown whole, and how many rows it had then: while it is read, all of it stays in view. */
let shownWhole: { store: TraceStore; rows: number } | null = null;

/** A trace that has just come has no view yet: it is shown whole. */
function keepInPlace(): void {
  const { first, last } = view.value;
  revision.value;
  const store = trace.value;
  if (!store || store.rows === 0 || frame.height.value === 0) return;
  const grown = shownWhole?.store === store && first === 0 && last === shownWhole.rows && store.rows > last;
  if (last > first && !grown) return;
  // The address may name a step without a view: then it stands near the top.
  if (sticks()) quietly(() => frame.showFull(store.rows));
  else if (!grown && focusRow.peek() >= 0) frame.showFull(focusRow.peek() - 1);
  else if (store.rows * FULL_HEIGHT <= 2 * frame.height.peek()) frame.showFull(0);
  else {
    shownWhole = { store, rows: store.rows };
    showRange(0, store.rows);
  }
}

/** With a filter, what is found is to be read: show it in full rows; without one, go back to the same place. */
function useFilterJumps(): void {
  const before = useRef(matches.peek().rows);
  useSignalEffect(() => {
    const { rows } = matches.value;
    if (rows === before.current) return;
    before.current = rows;
    if (frame.height.peek() > 0) frame.showFull(Math.max(focusRow.peek(), view.peek().first));
  });
}
