import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { clampTop, scrollFor, spacerHeight, topAt } from "../charts/scroll";
import type { Range, RequestIndex, Row, TraceStore } from "../data/model";
import type { ThemeName } from "../palette";
import type { View } from "../state/store";
import { type Axis, type AxisKind, makeAxis } from "./axis";
import { type Hit, hit } from "./hit";
import { LaneTip, laneWords, turnWords } from "./LaneTip";
import { type LaneCache, turnText } from "./lanes";
import { HEAD_HEIGHT, LABEL_WIDTH, LANE_HEIGHT, paint } from "./paint";

export interface LaneCanvasProps {
  store: TraceStore;
  cache: LaneCache;
  /** Lanes to show, top to bottom. */
  order: Int32Array;
  view: View;
  axis: AxisKind;
  theme: ThemeName;
  focusRow: Row;
  focusRequest: RequestIndex;
  selection: Range | null;
  meant: Uint8Array | null;
  onSelect(request: RequestIndex, row: Row): void;
  onRow(row: Row): void;
  onRange(range: Range): void;
  onZoom(factor: number, anchor: number): void;
  onPan(share: number): void;
}

const DRAG_AT_LEAST = 4;

interface Size {
  width: number;
  height: number;
}

/** The lanes: a canvas that stays where it is while an empty element as tall as all lanes scrolls behind it. */
export function LaneCanvas(props: LaneCanvasProps) {
  const { store, cache, order, view } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSize(scroller);
  const [top, setTop] = useState(0);
  const [cursor, setCursor] = useState(0);
  const [turn, setTurn] = useState(-1);
  const [over, setOver] = useState<{ hit: Hit; x: number; y: number } | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const room = Math.max(size.height - HEAD_HEIGHT, LANE_HEIGHT);
  const first = clampTop(order.length, top, room, LANE_HEIGHT);
  const axis = useMemo(
    () => makeAxis(store, view, Math.max(size.width - LABEL_WIDTH, 1), props.axis),
    [store, store.version, view.first, view.last, size.width, props.axis],
  );
  const inSight = useMemo(() => visible(cache, order, first, room), [cache, order, first, room]);
  useEffect(() => {
    const pen = canvas.current && prepare(canvas.current, size);
    if (!pen) return;
    const selection = drag ? rowsOf(axis, drag, store) : props.selection;
    paint(
      pen,
      { ...props, axis, lanes: inSight, top: first, selection, turnText: (request) => turnText(store, request) },
      size.width,
      size.height,
    );
  });

  const move = (next: number) => {
    const element = scroller.current;
    const wanted = clampTop(order.length, next, room, LANE_HEIGHT);
    setTop(wanted);
    if (element) element.scrollTop = scrollFor(order.length, wanted, room, LANE_HEIGHT);
  };
  const at = (event: MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    const x = event.clientX - (box?.left ?? 0);
    const y = event.clientY - (box?.top ?? 0);
    return { hit: hit(inSight, first, axis, x, y), x, y };
  };
  const pick = (found: Hit) => {
    setCursor(found.position);
    if (found.turn) props.onSelect(found.turn.request, found.row);
    else if (found.row >= 0) props.onRow(found.row);
  };
  const lane = Math.min(cursor, order.length - 1);
  const current = lane >= 0 ? cache.at(order[lane]) : null;
  const keys: Record<string, () => void> = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    PageDown: () => step(Math.floor(room / LANE_HEIGHT)),
    PageUp: () => step(-Math.floor(room / LANE_HEIGHT)),
    Home: () => step(-order.length),
    End: () => step(order.length),
    ArrowRight: () => setTurn(Math.min(turn + 1, (current?.lane.turns.length ?? 0) - 1)),
    ArrowLeft: () => setTurn(Math.max(turn - 1, 0)),
    Enter: () => {
      const life = current?.lane.turns[Math.max(turn, 0)];
      if (life) props.onSelect(life.request, life.phases[0]?.first ?? 0);
    },
  };
  const step = (by: number) => {
    const next = Math.min(Math.max(lane + by, 0), order.length - 1);
    setCursor(next);
    setTurn(-1);
    if (next < first) move(next);
    else if ((next + 1 - first) * LANE_HEIGHT > room) move(next + 1 - room / LANE_HEIGHT);
  };

  return (
    <div
      class="lanes"
      ref={scroller}
      role="listbox"
      aria-label="Jobs, one lane each: up and down for jobs, left and right for turns, Enter opens one"
      tabIndex={0}
      aria-activedescendant={current ? "lane-current" : undefined}
      onScroll={() => {
        const element = scroller.current;
        const exact = element && scrollFor(order.length, first, room, LANE_HEIGHT);
        // A position set by `move` is rounded by the browser: it must not move the lanes back.
        if (element && exact !== null && Math.abs(element.scrollTop - exact) > 1.5) {
          setTop(topAt(order.length, element.scrollTop, room, LANE_HEIGHT));
        }
      }}
      onWheel={(event) => wheel(event, { props, axis, move, first, canvas: canvas.current })}
      onKeyDown={(event) => {
        const act = keys[event.key];
        if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        event.stopPropagation();
        act();
      }}
      onPointerDown={(event) => {
        const { x, y, hit: found } = at(event);
        setOver(null);
        if (event.button === 0 && found && x > LABEL_WIDTH && y > HEAD_HEIGHT) setDrag({ from: x, to: x });
      }}
      onPointerMove={(event) => {
        const found = at(event);
        if (drag) setDrag({ from: drag.from, to: found.x });
        setOver(found.hit && !drag ? { hit: found.hit, x: found.x, y: found.y } : null);
      }}
      onPointerUp={(event) => {
        const { x, hit: found } = at(event);
        if (drag && Math.abs(x - drag.from) >= DRAG_AT_LEAST)
          props.onRange(rowsOf(axis, { from: drag.from, to: x }, store));
        else if (found && found.position < order.length) pick(found);
        setDrag(null);
      }}
      onPointerLeave={() => {
        setOver(null);
        setDrag(null);
      }}
    >
      <canvas ref={canvas} style={{ width: `${size.width}px`, height: `${size.height}px` }} />
      <div
        class="lanes-room"
        style={{ height: `${spacerHeight(order.length, room, LANE_HEIGHT) + HEAD_HEIGHT - size.height}px` }}
      />
      {current && (
        <div
          id="lane-current"
          role="option"
          tabIndex={-1}
          aria-selected="true"
          class="lane-current"
          style={{ top: `${(scroller.current?.scrollTop ?? 0) + HEAD_HEIGHT + (lane - first) * LANE_HEIGHT}px` }}
        >
          <span class="hidden-text">
            {turn >= 0 && current.lane.turns[turn]
              ? turnWords(store, current.lane.turns[turn])
              : laneWords(current.lane, lane, order.length)}
          </span>
        </div>
      )}
      {over && <LaneTip store={store} over={over} size={size} scrollTop={scroller.current?.scrollTop ?? 0} />}
    </div>
  );
}

function visible(cache: LaneCache, order: Int32Array, first: number, room: number) {
  const found = [];
  const last = Math.min(Math.ceil(first + room / LANE_HEIGHT), order.length);
  for (let position = Math.floor(first); position < last; position++) found.push(cache.at(order[position]));
  return found;
}

function rowsOf(axis: Axis, drag: { from: number; to: number }, store: TraceStore): Range {
  const [from, to] = drag.from < drag.to ? [drag.from, drag.to] : [drag.to, drag.from];
  const row = (x: number) => Math.min(Math.max(Math.floor(axis.rowAt(x - LABEL_WIDTH)), 0), store.rows - 1);
  return { first: row(from), last: row(to) };
}

/** Plain wheel: lanes. With Ctrl: zoom about the pointer. Sideways, or with Shift: earlier and later. */
function wheel(event: WheelEvent, at: WheelPlace): void {
  event.preventDefault();
  const pixels = event.deltaMode === 1 ? 16 : 1;
  const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey || event.metaKey) {
    const x = event.clientX - (at.canvas?.getBoundingClientRect().left ?? 0) - LABEL_WIDTH;
    at.props.onZoom(1.0015 ** (event.deltaY * pixels), at.axis.rowAt(x));
  } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) at.props.onPan((across * pixels) / 800);
  else at.move(at.first + (event.deltaY * pixels) / LANE_HEIGHT);
}

interface WheelPlace {
  props: LaneCanvasProps;
  axis: Axis;
  first: number;
  canvas: HTMLCanvasElement | null;
  move(top: number): void;
}

/** The canvas as many device pixels large as it is shown; null if there is nothing to draw on. */
function prepare(canvas: HTMLCanvasElement, size: Size): CanvasRenderingContext2D | null {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(size.width * scale);
  const height = Math.round(size.height * scale);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const pen = canvas.getContext("2d", { alpha: false });
  pen?.setTransform(scale, 0, 0, scale, 0, 0);
  return pen;
}

function useSize(element: { current: HTMLElement | null }): Size {
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useEffect(() => {
    const watched = element.current;
    if (!watched) return;
    const measure = () => setSize({ width: watched.clientWidth, height: watched.clientHeight });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(watched);
    return () => watch.disconnect();
  }, []);
  return size;
}
