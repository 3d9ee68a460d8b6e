/** Pointer and wheel over the lanes: look, click, drag over steps, scroll, zoom, pan. */

import { useState } from "preact/hooks";
import type { Range } from "../data/model/columns";
import { type Hit, hit } from "./hit";
import type { LaneCanvasProps } from "./LaneCanvas";
import { HEAD_HEIGHT, LABEL_WIDTH, LANE_HEIGHT } from "./paint";
import type { LaneCursor } from "./useLaneCursor";
import type { Scene } from "./useScene";

const DRAG_AT_LEAST = 4;
/** Pixels of a line, for mice whose wheel counts lines, and those that pan by a screen. */
const LINE = 16;
const PAN = 800;
const ZOOM = 1.0015;

export interface Over {
  hit: Hit;
  x: number;
  y: number;
}

export interface LanePointer {
  /** What the pointer is over; null while it drags. */
  over: Over | null;
  /** The steps dragged over so far. */
  dragged: Range | null;
  onWheel(event: WheelEvent): void;
  onPointerDown(event: PointerEvent): void;
  onPointerMove(event: PointerEvent): void;
  onPointerUp(event: PointerEvent): void;
  onPointerLeave(): void;
}

export function useLanePointer(props: LaneCanvasProps, scene: Scene, cursor: LaneCursor): LanePointer {
  const [over, setOver] = useState<Over | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const at = (event: MouseEvent) => {
    const box = scene.canvas.current?.getBoundingClientRect();
    const x = event.clientX - (box?.left ?? 0);
    const y = event.clientY - (box?.top ?? 0);
    return { hit: hit(scene.lanes, scene.first, scene.axis, x, y), x, y };
  };
  const rows = (from: number, to: number): Range => {
    const last = props.store.rows - 1;
    const row = (x: number) => Math.min(Math.max(Math.floor(scene.axis.rowAt(x - LABEL_WIDTH)), 0), last);
    return { first: row(Math.min(from, to)), last: row(Math.max(from, to)) };
  };
  const pick = ({ position, turn, row }: Hit) => {
    if (position >= props.order.length) return;
    cursor.goTo(position);
    if (turn) props.onSelect(turn.request, row);
    else if (row >= 0) props.onRow(row);
  };
  return {
    over,
    dragged: drag && rows(drag.from, drag.to),
    onWheel: (event) => wheel(event, props, scene),
    onPointerDown: (event) => {
      const { x, y } = at(event);
      setOver(null);
      if (event.button === 0 && x > LABEL_WIDTH && y > HEAD_HEIGHT) setDrag({ from: x, to: x });
    },
    onPointerMove: (event) => {
      const found = at(event);
      if (drag) setDrag({ from: drag.from, to: found.x });
      setOver(found.hit && !drag ? { ...found, hit: found.hit } : null);
    },
    onPointerUp: (event) => {
      const { x, hit: found } = at(event);
      if (drag && Math.abs(x - drag.from) >= DRAG_AT_LEAST) props.onRange(rows(drag.from, x));
      else if (found) pick(found);
      setDrag(null);
    },
    onPointerLeave: () => {
      setOver(null);
      setDrag(null);
    },
  };
}

/** Plain wheel: lanes. With Ctrl: zoom about the pointer. Sideways, or with Shift: earlier and later. */
function wheel(event: WheelEvent, { onZoom, onPan }: LaneCanvasProps, scene: Scene): void {
  event.preventDefault();
  const pixels = event.deltaMode === 1 ? LINE : 1;
  const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey || event.metaKey) {
    const x = event.clientX - (scene.canvas.current?.getBoundingClientRect().left ?? 0) - LABEL_WIDTH;
    onZoom(ZOOM ** (event.deltaY * pixels), scene.axis.rowAt(x));
  } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) onPan((across * pixels) / PAN);
  else scene.move(scene.first + (event.deltaY * pixels) / LANE_HEIGHT);
}
