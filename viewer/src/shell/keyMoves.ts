/** What each key does that needs no field of the page. */

import type { Tab } from "../state/hash";
import type { Action } from "../state/keyboard";
import { setStick } from "../state/live";
import { back, extend, fit, focus, pan, sameEpisode, sameReason, showTab, stepBy, zoom } from "../state/moves";
import { live, trace } from "../state/store";

const ZOOM = 1.5;
const PAN = 0.25;

export const keyMoves: Partial<Record<Action, () => void>> = {
  "zoom-in": () => zoom(1 / ZOOM),
  "zoom-out": () => zoom(ZOOM),
  earlier: () => pan(-PAN),
  later: () => pan(PAN),
  "next-step": () => stepBy(1),
  "previous-step": () => stepBy(-1),
  "next-same-reason": () => sameReason(1),
  "previous-same-reason": () => sameReason(-1),
  "next-episode": () => sameEpisode(1),
  "previous-episode": () => sameEpisode(-1),
  "page-earlier": () => pan(-0.9),
  "page-later": () => pan(0.9),
  "extend-later": () => extend(1),
  "extend-earlier": () => extend(-1),
  "extend-page-later": () => extend(1, true),
  "extend-page-earlier": () => extend(-1, true),
  "first-step": () => focus(0),
  "last-step": () => {
    // Of a run that is followed the last step is another one in a moment: its end is kept in view, none is opened.
    if (live.peek().phase !== "off") setStick(true);
    else focus((trace.peek()?.rows ?? 1) - 1);
  },
  fit,
  back: () => void back(),
  "tab-1": () => goToTab("overview"),
  "tab-2": () => goToTab("timeline"),
  "tab-3": () => goToTab("requests"),
  "tab-4": () => goToTab("statistics"),
  "tab-5": () => goToTab("compare"),
};

/** After a key, Tab goes on from there, and not from the top of the page. */
function goToTab(tab: Tab): void {
  showTab(tab);
  document.getElementById("view")?.focus({ preventScroll: true });
}
