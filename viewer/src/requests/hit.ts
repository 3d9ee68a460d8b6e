/** What lies under the pointer. */

import type { Axis } from "../charts/axis";
import type { Row } from "../data/model/columns";
import type { Phase, RequestLife } from "../data/model/lives";
import { barOf, type DrawnLane, HEAD_HEIGHT, LABEL_WIDTH, LANE_HEIGHT } from "./paint";

export interface Hit {
  /** Position among the shown lanes, and among those in sight. */
  position: number;
  one: DrawnLane | null;
  turn: RequestLife | null;
  phase: Phase | null;
  /** Step under the pointer; -1 over the labels. */
  row: Row;
}

/** Pixels beside a bar that still count as on it: a phase of one step may be a pixel wide. */
const REACH = 3;

/** Null above the first lane. `top` is the position of the first lane in sight, fractional. */
export function hit(lanes: readonly DrawnLane[], top: number, axis: Axis, x: number, y: number): Hit | null {
  if (y < HEAD_HEIGHT) return null;
  const place = (y - HEAD_HEIGHT) / LANE_HEIGHT + top;
  const position = Math.floor(place);
  const one = lanes[position - Math.floor(top)] ?? null;
  const across = x - LABEL_WIDTH;
  const row = across < 0 ? -1 : Math.floor(axis.rowAt(across));
  const found: Hit = { position, one, turn: null, phase: null, row };
  if (!one || across < 0) return found;
  const inLane = (place - position) * LANE_HEIGHT;
  let nearest = REACH;
  one.lane.turns.forEach((turn, index) => {
    const bar = barOf(one, index);
    if (one.tracks.count > 1 && (inLane < bar.top || inLane > bar.top + bar.height)) return;
    for (const phase of turn.phases) {
      const from = axis.place(phase.begin, phase.first);
      const to = Math.max(axis.place(phase.end, phase.last + 1), from + 1);
      const distance = across < from ? from - across : Math.max(across - to, 0);
      if (distance < nearest || (distance === 0 && found.phase === null)) {
        nearest = distance;
        found.turn = turn;
        found.phase = phase;
      }
    }
  });
  return found;
}
