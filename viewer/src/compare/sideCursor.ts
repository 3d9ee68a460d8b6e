/** The line of the step-by-step list that the keyboard is at, and which lines are in sight. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { clampTop, scrollFor, topAt } from "../charts/scroll";

export interface SideCursor {
  scroller: RefObject<HTMLDivElement>;
  /** First line in sight. */
  first: number;
  /** -1: none yet. */
  chosen: number;
  /** Choose a line and bring it into sight. */
  choose(position: number): void;
  onKeyDown(event: KeyboardEvent): void;
  onScroll(): void;
}

interface SideCursorOptions {
  count: number;
  /** Lines in sight, and their height in pixels. */
  lines: number;
  line: number;
  start: number;
  onOpen(position: number, other: boolean): void;
}

/** Lines above a line that is jumped to. */
const ABOVE = 4;

export function useSideCursor({ count, lines, line, start, onOpen }: SideCursorOptions): SideCursor {
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(() => Math.max(start - ABOVE, 0));
  const [chosen, setChosen] = useState(start);
  const room = lines * line;
  const first = Math.floor(clampTop(count, top, room, line));
  const move = (position: number) => {
    const next = clampTop(count, position, room, line);
    setTop(next);
    if (scroller.current) scroller.current.scrollTop = scrollFor(count, next, room, line);
  };
  // The list stands at its start before it has been scrolled.
  useLayoutEffect(() => move(top), []);
  const choose = (wanted: number) => {
    const position = Math.min(Math.max(wanted, 0), count - 1);
    setChosen(position);
    if (position < first || position >= first + lines) move(position - ABOVE);
  };
  const step = (by: number) => {
    const position = Math.min(Math.max((chosen < 0 ? first : chosen) + by, 0), count - 1);
    setChosen(position);
    if (position < first) move(position);
    else if (position >= first + lines) move(position + 1 - lines);
  };
  const keys: Record<string, (event: KeyboardEvent) => void> = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    PageDown: () => step(lines),
    PageUp: () => step(-lines),
    Home: () => step(-count),
    End: () => step(count),
    Enter: (event) => chosen >= 0 && onOpen(chosen, event.shiftKey),
  };
  return {
    ...{ scroller, first, chosen, choose },
    onKeyDown: (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      act(event);
    },
    onScroll: () => {
      const at = scroller.current?.scrollTop ?? 0;
      if (Math.abs(at - scrollFor(count, top, room, line)) > 1.5) setTop(topAt(count, at, room, line));
    },
  };
}
