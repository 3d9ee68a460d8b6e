/** Tabs that are read like a page: there arrows and pages scroll, wherever the focus is, and leave the Timeline alone. */

const PAGES = "#view .statistics, #view .compare, #view .request-table";
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
