/** The lane, and the turn in it, that the keyboard is at. */

import { useState } from "preact/hooks";
import type { LaneCanvasProps } from "./LaneCanvas";
import { type DrawnLane, LANE_HEIGHT } from "./paint";
import type { Scene } from "./useScene";

export interface LaneCursor {
  /** Position among the lanes shown; -1 if there are none. */
  position: number;
  lane: DrawnLane | null;
  /** Turn within it; -1 for the lane as a whole. */
  turn: number;
  goTo(position: number): void;
  onKeyDown(event: KeyboardEvent): void;
}

export function useLaneCursor({ cache, order, onSelect }: LaneCanvasProps, scene: Scene): LaneCursor {
  const [cursor, setCursor] = useState(0);
  const [turn, setTurn] = useState(-1);
  const position = Math.min(cursor, order.length - 1);
  const lane = position >= 0 ? cache.at(order[position]) : null;
  const page = Math.floor(scene.room / LANE_HEIGHT);
  const goTo = (wanted: number) => {
    setCursor(wanted);
    setTurn(-1);
  };
  const step = (by: number) => {
    const next = Math.min(Math.max(position + by, 0), order.length - 1);
    goTo(next);
    if (next < scene.first) scene.move(next);
    else if ((next + 1 - scene.first) * LANE_HEIGHT > scene.room) scene.move(next + 1 - scene.room / LANE_HEIGHT);
  };
  const keys: Record<string, () => void> = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    PageDown: () => step(page),
    PageUp: () => step(-page),
    Home: () => step(-order.length),
    End: () => step(order.length),
    ArrowRight: () => setTurn(Math.min(turn + 1, (lane?.lane.turns.length ?? 0) - 1)),
    ArrowLeft: () => setTurn(Math.max(turn - 1, 0)),
    Enter: () => {
      const life = lane?.lane.turns[Math.max(turn, 0)];
      if (life) onSelect(life.request, life.phases[0]?.first ?? 0);
    },
  };
  return {
    ...{ position, lane, turn, goTo },
    onKeyDown: (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    },
  };
}
