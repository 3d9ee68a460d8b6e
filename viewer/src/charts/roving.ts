import { useRef, useState } from "preact/hooks";

/** One tab stop for a row of buttons: the arrow keys walk among them, Home and End jump. */
export interface Roving {
  tabIndex(index: number): 0 | -1;
  ref(index: number): (element: HTMLElement | null) => void;
  onKeyDown(event: KeyboardEvent): void;
  onFocus(index: number): void;
}

export function useRoving(count: number): Roving {
  const [active, setActive] = useState(0);
  const elements = useRef<(HTMLElement | null)[]>([]);
  const current = Math.min(active, Math.max(count - 1, 0));
  const go = (index: number) => {
    const next = Math.min(Math.max(index, 0), count - 1);
    setActive(next);
    elements.current[next]?.focus();
  };
  return {
    tabIndex: (index) => (index === current ? 0 : -1),
    ref: (index) => (element) => {
      elements.current[index] = element;
    },
    onKeyDown: (event) => {
      const target = destination(event.key, current, count);
      if (target === null) return;
      event.preventDefault();
      event.stopPropagation();
      go(target);
    },
    onFocus: setActive,
  };
}

function destination(key: string, current: number, count: number): number | null {
  switch (key) {
    case "ArrowRight":
    case "ArrowDown":
      return current + 1;
    case "ArrowLeft":
    case "ArrowUp":
      return current - 1;
    case "Home":
      return 0;
    case "End":
      return count - 1;
    default:
      return null;
  }
}
