import { useEffect } from "preact/hooks";
import type { AxisKind } from "../charts/axis";
import { spacerHeight } from "../charts/scroll";
import type { Size } from "../charts/useSize";
import type { Range, RequestIndex, Row } from "../data/model/columns";
import type { RequestLife } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";
import { isCutShort } from "../data/status";
import { rowAtTime } from "../data/store";
import type { ThemeName } from "../palette";
import { marks } from "../state/marks";
import type { View } from "../state/store";
import { LaneTip, laneWords, turnWords } from "./LaneTip";
import { type LaneCache, turnText } from "./lanes";
import { HEAD_HEIGHT, LABEL_WIDTH, LANE_HEIGHT, paint } from "./paint";
import { type LaneCursor, useLaneCursor } from "./useLaneCursor";
import { useLanePointer } from "./useLanePointer";
import { type Scene, useScene } from "./useScene";

export interface LaneCanvasProps {
  store: TraceStore;
  cache: LaneCache;
  /** Lanes to show, top to bottom. */
  order: Int32Array;
  /** By what they are sorted. */
  sort: string;
  /** Over the labels. */
  head: string;
  view: View;
  axis: AxisKind;
  theme: ThemeName;
  focusRow: Row;
  focusRequest: RequestIndex;
  selection: Range | null;
  /** Requests that the filter means. */
  meant: Uint8Array | null;
  onSelect(request: RequestIndex, row: Row): void;
  onRow(row: Row): void;
  onRange(range: Range): void;
  onZoom(factor: number, anchor: number): void;
  onPan(share: number): void;
}

/** The lanes: a canvas that stays where it is while an empty element as tall as all lanes scrolls behind it. */
export function LaneCanvas(props: LaneCanvasProps) {
  const scene = useScene(props);
  const cursor = useLaneCursor(props, scene);
  const { over, dragged, ...pointer } = useLanePointer(props, scene, cursor);
  const { size, room } = scene;
  const scrollTop = scene.scroller.current?.scrollTop ?? 0;
  useEffect(() => draw(props, scene, dragged ?? props.selection));
  return (
    <div
      class="lanes"
      ref={scene.scroller}
      role="listbox"
      aria-label="Jobs, one lane each: up and down for jobs, left and right for turns, Enter opens one"
      tabIndex={0}
      aria-activedescendant={cursor.lane ? "lane-current" : undefined}
      onScroll={scene.onScroll}
      onKeyDown={cursor.onKeyDown}
      {...pointer}
    >
      <canvas ref={scene.canvas} style={{ width: `${size.width}px`, height: `${size.height}px` }} />
      <div style={{ height: `${spacerHeight(props.order.length, room, LANE_HEIGHT) + HEAD_HEIGHT - size.height}px` }} />
      <Current {...props} cursor={cursor} scene={scene} top={scrollTop + HEAD_HEIGHT - scene.first * LANE_HEIGHT} />
      {over && <LaneTip store={props.store} over={over} size={size} scrollTop={scrollTop} />}
    </div>
  );
}

interface CurrentProps extends LaneCanvasProps {
  cursor: LaneCursor;
  scene: Scene;
  /** Where the first of all lanes would begin. */
  top: number;
}

/** The lane that the keyboard is at, as a real element: a mark to see, and words to hear. */
function Current({ store, order, cursor, scene, top }: CurrentProps) {
  if (!cursor.lane) return null;
  const { lane } = cursor.lane;
  const turn = lane.turns[cursor.turn];
  return (
    <div
      id="lane-current"
      role="option"
      tabIndex={-1}
      aria-selected="true"
      class="lane-current"
      style={{ top: `${top + cursor.position * LANE_HEIGHT}px`, height: `${LANE_HEIGHT}px` }}
    >
      {turn && <span class="turn-current" style={turnBox(turn, scene)} />}
      <span class="hidden-text">{turn ? turnWords(store, turn) : laneWords(lane, cursor.position, order.length)}</span>
    </div>
  );
}

/** From where to where a turn lies in its lane, cut to what is in view. */
function turnBox({ phases }: RequestLife, { axis }: Scene): { left: string; width: string } {
  const inView = (x: number) => Math.min(Math.max(x, 0), axis.width);
  const [first, last] = [phases[0], phases.at(-1)];
  const from = first ? inView(axis.place(first.begin, first.first)) : 0;
  const to = last ? inView(axis.place(last.end, last.last + 1)) : from;
  return { left: `${LABEL_WIDTH + from - 2}px`, width: `${Math.max(to - from, 2) + 4}px` };
}

function draw(props: LaneCanvasProps, scene: Scene, selection: Range | null): void {
  const { axis, size, canvas } = scene;
  const pen = canvas.current && prepare(canvas.current, size);
  if (!pen) return;
  const turnName = (request: RequestIndex) => turnText(props.store, request);
  const isCut = (request: RequestIndex) => isCutShort(props.store, request);
  const rowAt = (ts: number) => rowAtTime(props.store, ts);
  const moments = { marks: marks.value, rowAt };
  const picture = {
    ...props,
    ...moments,
    axis,
    lanes: scene.lanes,
    top: scene.first,
    selection,
    turnText: turnName,
    isCut,
  };
  paint(pen, picture, size.width, size.height);
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
