/** Mouse and wheel on the timeline: scroll, zoom, click a step or a pill, drag to select steps. */

import type { Signal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";
import { shortId } from "../data/labels";
import { PILLS } from "../palette";
import { focus, zoom } from "../state/moves";
import { focusRequest, focusRow, selection, trace } from "../state/store";
import * as frame from "./frame";
import { placeAt } from "./geometry";
import type { Painter } from "./painter";

/** A drag of fewer pixels is a click. */
const DRAG_PIXELS = 6;
const LINE_PIXELS = 40;
const WHEEL_ZOOM = 0.0015;

export function usePointer(stage: RefObject<HTMLElement>, painter: Painter, hint: Signal<string>): void {
  useEffect(() => {
    const element = stage.current;
    if (!element) return undefined;
    const stop = new AbortController();
    const { signal } = stop;
    element.addEventListener("wheel", onWheel, { passive: false, signal });
    element.addEventListener("pointerdown", (event) => onDown(event, element, painter), { signal });
    element.addEventListener("pointermove", (event) => showHint(event, element, painter, hint), { signal });
    return () => stop.abort();
  }, [stage, painter, hint]);
}

function onWheel(event: WheelEvent): void {
  if (scrollsItself(event)) return;
  event.preventDefault();
  const { geometry } = frame;
  const { top, rowHeight, height } = geometry.peek();
  const pixels = event.deltaMode === 1 ? event.deltaY * LINE_PIXELS : event.deltaY;
  if (event.ctrlKey || event.metaKey) {
    const y = event.clientY - (event.currentTarget as HTMLElement).getBoundingClientRect().top;
    zoom(Math.exp(pixels * 4 * WHEEL_ZOOM), frame.axis.peek().toRow(top + y / rowHeight));
    return;
  }
  const first = top + pixels / rowHeight;
  frame.showPlaces(first, first + height / rowHeight);
}

/** The opened row may have more pills than room: then the wheel is its own until its end. */
function scrollsItself(event: WheelEvent): boolean {
  if (event.ctrlKey || !(event.target instanceof Element)) return false;
  const row = event.target.closest(".focused-row");
  if (!row || row.scrollHeight <= row.clientHeight + 1) return false;
  return event.deltaY < 0 ? row.scrollTop > 0 : row.scrollTop + row.clientHeight < row.scrollHeight - 1;
}

function pointOf(event: PointerEvent, element: HTMLElement): { x: number; y: number } {
  const box = element.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function onDown(event: PointerEvent, element: HTMLElement, painter: Painter): void {
  if (event.pointerType === "touch") onTouch(event, element, painter);
  else onPress(event, element, painter);
}

/** A finger moves the rows, as anywhere on a phone; a tap opens one. Steps are selected in the strip, or by keys. */
function onTouch(event: PointerEvent, element: HTMLElement, painter: Painter): void {
  const from = pointOf(event, element);
  const { top, height, rowHeight } = frame.geometry.peek();
  const inOpened = event.target instanceof Element && event.target.closest(".focused-row") !== null;
  const place = placeAt(frame.geometry.peek(), from.y);
  let moving = false;
  const move = (moved: PointerEvent) => {
    const by = pointOf(moved, element).y - from.y;
    if (!moving && Math.abs(by) <= DRAG_PIXELS) return;
    if (!moving) element.setPointerCapture(event.pointerId);
    moving = true;
    const first = top - by / rowHeight;
    frame.showPlaces(first, first + height / rowHeight);
  };
  untilUp(event, element, move, () => {
    if (!moving && !inOpened && place >= 0) click(painter, place, from);
  });
}

/** Follow one pointer until it goes up; `up` is not called if the browser takes it over. */
function untilUp(
  { pointerId }: PointerEvent,
  element: HTMLElement,
  move: (event: PointerEvent) => void,
  up: () => void,
): void {
  const done = new AbortController();
  const { signal } = done;
  const own = (act: (event: PointerEvent) => void) => (event: PointerEvent) => {
    if (event.pointerId === pointerId) act(event);
  };
  element.addEventListener("pointermove", own(move), { signal });
  const end = own(() => {
    done.abort();
    up();
  });
  element.addEventListener("pointerup", end, { signal });
  element.addEventListener(
    "pointercancel",
    own(() => done.abort()),
    { signal },
  );
}

function onPress(event: PointerEvent, element: HTMLElement, painter: Painter): void {
  if (event.button !== 0 || (event.target instanceof Element && event.target.closest(".focused-row"))) return;
  const from = pointOf(event, element);
  const { geometry, axis } = frame;
  const firstPlace = placeAt(geometry.peek(), from.y);
  if (firstPlace < 0) return;
  element.setPointerCapture(event.pointerId);
  let dragging = false;
  const move = (moved: PointerEvent) => {
    const { y } = pointOf(moved, element);
    dragging ||= Math.abs(y - from.y) > DRAG_PIXELS;
    if (!dragging) return;
    const count = axis.peek().count;
    const place = Math.min(Math.max(placeAt(geometry.peek(), Math.max(y, 0)), 0) || edge(y), count - 1);
    const [first, last] = [Math.min(firstPlace, place), Math.max(firstPlace, place)];
    selection.value = { first: axis.peek().rowAt(first), last: axis.peek().rowAt(last) };
  };
  untilUp(event, element, move, () => {
    if (!dragging) click(painter, firstPlace, from);
  });
}

/** The place at the edge over which a drag went. */
function edge(y: number): number {
  const { top, count, height, rowHeight } = frame.geometry.peek();
  return y <= 0 ? Math.max(Math.floor(top), 0) : Math.min(Math.floor(top + height / rowHeight), count - 1);
}

function click(painter: Painter, place: number, { x, y }: { x: number; y: number }): void {
  const row = frame.axis.peek().rowAt(place);
  const pill = painter.pillAt(x, y);
  if (pill) focus(row, pill.pill.request);
  else if (focusRow.peek() === row) {
    focusRow.value = -1;
    focusRequest.value = -1;
  } else focus(row, -1);
}

function showHint(event: PointerEvent, element: HTMLElement, painter: Painter, hint: Signal<string>): void {
  const store = trace.peek();
  if (!store || (event.target instanceof Element && event.target.closest(".focused-row"))) {
    hint.value = "";
    return;
  }
  const { x, y } = pointOf(event, element);
  const found = painter.pillAt(x, y);
  if (found) {
    hint.value = `${shortId(store.requests.ids[found.pill.request], 120)}\n${found.pill.label}\n${PILLS[found.pill.kind].words}${found.pill.reason ? `\n${found.pill.reason}` : ""}`;
    return;
  }
  const badge = painter.badgeAt(x, y);
  if (badge) {
    hint.value = `${badge.label}\n${badge.title}`;
    return;
  }
  const place = placeAt(frame.geometry.peek(), y);
  const reason = place < 0 ? undefined : store.shown[store.steps.shown[frame.axis.peek().rowAt(place)]];
  hint.value = reason ? `${reason.name}${reason.recorded ? " (recorded)" : ""}: ${reason.meaning}` : "";
}
