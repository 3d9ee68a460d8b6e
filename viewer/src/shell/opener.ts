/** From where the panel was opened with the keyboard: it gets the focus then, and gives it back when it is left. */

import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { back } from "../state/moves";
import { focusRequest, focusRow } from "../state/store";

/** Where Enter opens the panel, or another one in the panel itself. */
const OPENS = ".requests, .legend, .side";

/** Moves the focus into the panel when Enter (or the space bar) opened it; the handler for its keys. */
export function useOpener(panel: RefObject<HTMLElement>): (event: KeyboardEvent) => void {
  const pressed = useRef<HTMLElement | null>(null);
  const from = useRef<HTMLElement | null>(null);
  const inside = useRef(false);
  const row = focusRow.value;
  const request = focusRequest.value;
  useEffect(() => {
    const down = ({ key, target }: KeyboardEvent) => {
      const opens = (key === "Enter" || key === " ") && target instanceof HTMLElement && target.closest(OPENS);
      pressed.current = opens && !isField(target) ? target : null;
    };
    const up = () => setTimeout(() => (pressed.current = null));
    const moved = () => {
      inside.current = panel.current?.contains(document.activeElement) ?? false;
    };
    document.addEventListener("keydown", down, true);
    document.addEventListener("keyup", up, true);
    document.addEventListener("focusin", moved);
    return () => {
      document.removeEventListener("keydown", down, true);
      document.removeEventListener("keyup", up, true);
      document.removeEventListener("focusin", moved);
    };
  }, [panel]);
  useLayoutEffect(() => {
    const open = pressed.current;
    pressed.current = null;
    if (open && panel.current) {
      if (!open.closest(".side")) from.current = open;
      panel.current.focus({ preventScroll: true });
      panel.current.scrollTop = 0;
    } else if (!panel.current && inside.current) {
      inside.current = false;
      giveBack(from.current);
    }
  }, [row, request, panel]);
  return (event) => {
    if (event.key !== "Escape" || isField(event.target)) return;
    event.preventDefault();
    event.stopPropagation();
    inside.current = false;
    giveBack(from.current);
    back();
  };
}

function isField(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, textarea, select") !== null;
}

/** To where it came from; to what is open if that is no longer there. */
function giveBack(to: HTMLElement | null): void {
  const there = to?.isConnected ? to : document.querySelector<HTMLElement>("#view [tabindex='0'], #view button");
  there?.focus();
}
