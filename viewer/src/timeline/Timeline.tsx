/** The Timeline tab: one row per step, from single steps to the whole run. */

import { useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import type { Pill } from "../data/model/moment";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { keepEnd, quietly, sticks } from "../state/live";
import { setRoom, setSlack } from "../state/moves";
import { focusRequest, focusRow, matches, revision, trace, view } from "../state/store";
import { FocusedRow } from "./FocusedRow";
import * as frame from "./frame";
import { type Column, FULL_HEIGHT, TEXT_HEIGHT, yOf } from "./geometry";
import { startPainting } from "./paint";
import { Painter } from "./painter";
import { usePointer } from "./pointer";
import { RangeBar } from "./RangeBar";
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
      <RangeBar store={store} />
      <div class="grid-frame">
        <div
          class="grid"
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

function Nothing() {
  return (
    <p class="nothing" role="status">
      No step passes the filter. Press <kbd>/</kbd> to change it.
    </p>
  );
}

function Heads({ columns }: { columns: readonly Column[] }) {
  const bars = frame.drawing.value !== "text";
  const { running, waiting } = frame.scales.value;
  const queue = (name: string, width: number) => (width < QUEUE_HEAD ? name : `${name} queue`);
  const titles: Record<Column["name"], string> = {
    step: "step",
    ts: "ts (+Δ)",
    batch: { text: "batch", bars: "reason · tokens of the budget", levels: "reason · share of blocked steps" }[
      frame.drawing.value
    ],
    running: bars ? `running queue (full bar: ${count(running)})` : queue("running", columns[3].width),
    waiting: bars ? `waiting queue (full bar: ${count(waiting)})` : queue("waiting", columns[4].width),
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

/** A trace that has just come has no view yet. */
function keepInPlace(): void {
  const { first, last } = view.value;
  revision.value;
  if (!trace.value || trace.value.rows === 0 || frame.height.value === 0 || last > first) return;
  // The address may name a step without a view: then it stands near the top.
  if (sticks()) quietly(() => frame.showFull(trace.peek()?.rows));
  else frame.showFull(focusRow.peek() >= 0 ? focusRow.peek() - 1 : first);
}

/** Whoever filters wants to read what is found: show it in full rows; without a filter, go back to the same place. */
function useFilterJumps(): void {
  const before = useRef(matches.peek().rows);
  useSignalEffect(() => {
    const { rows } = matches.value;
    if (rows === before.current) return;
    before.current = rows;
    if (frame.height.peek() > 0) frame.showFull(Math.max(focusRow.peek(), view.peek().first));
  });
}
