/** What each key does that needs no field of the page. */

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
    focus((trace.peek()?.rows ?? 1) - 1);
    if (live.peek().phase !== "off") setStick(true);
  },
  fit,
  back: () => void back(),
  "tab-1": () => showTab("timeline"),
  "tab-2": () => showTab("requests"),
  "tab-3": () => showTab("statistics"),
  "tab-4": () => showTab("compare"),
};
