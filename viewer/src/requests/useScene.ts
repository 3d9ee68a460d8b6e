/** What of the lanes is in sight: their box, how far it is scrolled, the axis, and the lanes themselves. */

import type { RefObject } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Axis, makeAxis } from "../charts/axis";
import { clampTop, scrollFor, topAt } from "../charts/scroll";
import { type Size, useSize } from "../charts/useSize";
import type { LaneCanvasProps } from "./LaneCanvas";
import type { LaneCache } from "./lanes";
import { type DrawnLane, HEAD_HEIGHT, LABEL_WIDTH, LANE_HEIGHT } from "./paint";

export interface Scene {
  scroller: RefObject<HTMLDivElement>;
  canvas: RefObject<HTMLCanvasElement>;
  size: Size;
  /** Height that lanes are seen in. */
  room: number;
  /** Position of the first lane in sight, fractional. */
  first: number;
  axis: Axis;
  lanes: DrawnLane[];
  /** Show a position first. */
  move(top: number): void;
  onScroll(): void;
}

export function useScene({ store, cache, order, sort, view, axis: kind }: LaneCanvasProps): Scene {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSize(scroller);
  const [kept, setTop] = useState(0);
  const before = useRef({ order, sort });
  // Lanes that are left out, or are there again, move none of the others out of sight.
  const filtered = before.current.order !== order && before.current.sort === sort;
  const top = filtered ? sameLane(before.current.order, order, kept) : kept;
  useLayoutEffect(() => {
    before.current = { order, sort };
    if (top !== kept) scene.move(top);
  }, [order, sort]);
  const room = Math.max(size.height - HEAD_HEIGHT, LANE_HEIGHT);
  const first = clampTop(order.length, top, room, LANE_HEIGHT);
  const axis = useMemo(
    () => makeAxis(store, view, Math.max(size.width - LABEL_WIDTH, 1), kind),
    [store, store.version, view.first, view.last, size.width, kind],
  );
  const lanes = useMemo(() => inSight(cache, order, first, room), [cache, order, first, room]);
  const scene: Scene = {
    ...{ scroller, canvas, size, room, first, axis, lanes },
    move: (next) => {
      const wanted = clampTop(order.length, next, room, LANE_HEIGHT);
      setTop(wanted);
      if (scroller.current) scroller.current.scrollTop = scrollFor(order.length, wanted, room, LANE_HEIGHT);
    },
    onScroll: () => {
      const at = scroller.current?.scrollTop ?? 0;
      // A position set by `move` is rounded by the browser: it must not move the lanes back.
      if (Math.abs(at - scrollFor(order.length, first, room, LANE_HEIGHT)) > 1.5) {
        setTop(topAt(order.length, at, room, LANE_HEIGHT));
      }
    },
  };
  return scene;
}

/** Where the lane that came first is now, or the next one that is still shown. */
function sameLane(before: Int32Array, order: Int32Array, top: number): number {
  const position = new Map(Array.from(order, (lane, at) => [lane, at]));
  for (let at = Math.floor(top); at < before.length; at++) {
    const found = position.get(before[at]);
    if (found !== undefined) return found;
  }
  return order.length;
}

function inSight(cache: LaneCache, order: Int32Array, first: number, room: number): DrawnLane[] {
  const found = [];
  const last = Math.min(Math.ceil(first + room / LANE_HEIGHT), order.length);
  for (let position = Math.floor(first); position < last; position++) found.push(cache.at(order[position]));
  return found;
}
