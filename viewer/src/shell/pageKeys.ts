/** Tabs that are read like a page: there arrows and pages scroll, wherever the focus is, and leave the Timeline alone. */

import type { KeyTarget } from "../state/keyboard";
import { lettersAreOff } from "../state/store";

const PAGES = "#view .overview, #view .statistics, #view .compare, #view .request-table, #view .group-table";
const LINE = 40;

/** What scrolls in the tab that is open; null in one that has its own use for those keys. */
export function pageScroller(): HTMLElement | null {
  return document.querySelector<HTMLElement>(PAGES);
}

/** Scroll as the browser would if the focus were inside; false if the key is not one of those. */
export function scrollPage(page: HTMLElement, { key, shiftKey, ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  if (shiftKey || ctrlKey || metaKey || altKey) return false;
  const { clientHeight, scrollHeight, scrollTop } = page;
  const screen = clientHeight - LINE;
  const places: Readonly<Record<string, number>> = {
    ArrowDown: scrollTop + LINE,
    ArrowUp: scrollTop - LINE,
    PageDown: scrollTop + screen,
    PageUp: scrollTop - screen,
    Home: 0,
    End: scrollHeight,
  };
  const place = places[key];
  if (place === undefined) return false;
  page.scrollTop = place;
  return true;
}

const TEXT_FIELDS = new Set(["text", "search", "number"]);

export function targetOf(target: EventTarget | null): KeyTarget {
  const letters = lettersAreOff() ? ({ letters: "off" } as const) : {};
  if (!(target instanceof Element)) return { typing: false, ownArrows: false, ...letters };
  const typing =
    target instanceof HTMLTextAreaElement || (target instanceof HTMLInputElement && TEXT_FIELDS.has(target.type));
  return {
    ...letters,
    typing,
    ownArrows: target.closest("select, [role=slider], [role=tab], [role=menu], .own-keys, .side") !== null,
  };
}
