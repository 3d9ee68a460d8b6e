/** Each view is found again where it was left: how far it was scrolled is kept while the page is open. */

import { useEffect } from "preact/hooks";
import { pageScroller } from "./pageKeys";

const places = new Map<string, number>();

/** What a link leads to is seen from its top. */
export function forgetPlaces(): void {
  places.clear();
}

/** `key` names the view and its trace. What is computed comes late: until there is enough of it, it is tried again. */
export function useKeptScroll(key: string): void {
  useEffect(() => {
    const view = document.getElementById("view");
    const wanted = places.get(key) ?? 0;
    let settled = wanted === 0;
    const restore = () => {
      const page = settled ? null : pageScroller();
      if (!page) return;
      page.scrollTop = wanted;
      settled = Math.abs(page.scrollTop - wanted) < 2;
    };
    const keep = ({ target }: Event) => {
      if (settled && target === pageScroller()) places.set(key, (target as HTMLElement).scrollTop);
    };
    const taken = () => {
      settled = true;
    };
    const watch = new MutationObserver(restore);
    const done = new AbortController();
    const { signal } = done;
    if (view) watch.observe(view, { childList: true, subtree: true, attributes: true, attributeFilter: ["style"] });
    view?.addEventListener("scroll", keep, { capture: true, signal });
    for (const event of ["wheel", "pointerdown", "keydown"]) window.addEventListener(event, taken, { signal });
    restore();
    return () => {
      watch.disconnect();
      done.abort();
    };
  }, [key]);
}
