/** Which key does what: as in Perfetto where it has the key, and one table for the help page. */

export type Action =
  | "zoom-in"
  | "zoom-out"
  | "earlier"
  | "later"
  | "next-step"
  | "previous-step"
  | "next-same-reason"
  | "previous-same-reason"
  | "next-episode"
  | "previous-episode"
  | "page-earlier"
  | "page-later"
  | "extend-later"
  | "extend-earlier"
  | "extend-page-later"
  | "extend-page-earlier"
  | "first-step"
  | "last-step"
  | "fit"
  | "filter"
  | "go-to"
  | "help"
  | "back"
  | "tab-1"
  | "tab-2"
  | "tab-3"
  | "tab-4"
  | "tab-5";

export interface KeyHelp {
  keys: string[];
  words: string;
}

const BINDINGS: [keys: string[], action: Action][] = [
  [["w", "W", "+", "="], "zoom-in"],
  [["s", "S", "-"], "zoom-out"],
  [["a", "A"], "earlier"],
  [["d", "D"], "later"],
  [[".", "ArrowDown"], "next-step"],
  [[",", "ArrowUp"], "previous-step"],
  [["n"], "next-same-reason"],
  [["N"], "previous-same-reason"],
  [["e"], "next-episode"],
  [["E"], "previous-episode"],
  [["PageUp"], "page-earlier"],
  [["PageDown"], "page-later"],
  [["Home"], "first-step"],
  [["End"], "last-step"],
  [["f", "F"], "fit"],
  [["/"], "filter"],
  [["g", "G"], "go-to"],
  [["?"], "help"],
  [["Escape"], "back"],
  [["1"], "tab-1"],
  [["2"], "tab-2"],
  [["3"], "tab-3"],
  [["4"], "tab-4"],
  [["5"], "tab-5"],
];

const EXTENDS: Readonly<Record<string, Action>> = {
  ArrowDown: "extend-later",
  ArrowUp: "extend-earlier",
  PageDown: "extend-page-later",
  PageUp: "extend-page-earlier",
};

const ACTION_OF = new Map(BINDINGS.flatMap(([keys, action]) => keys.map((key) => [key, action] as const)));
const ARROWS_AND_PAGES = new Set(["ArrowDown", "ArrowUp", "PageUp", "PageDown", "Home", "End"]);

/** For the help page, in its order. */
export const KEY_HELP: KeyHelp[] = [
  { keys: ["W", "S"], words: "zoom in, zoom out" },
  { keys: ["A", "D"], words: "move earlier, later" },
  { keys: [".", ","], words: "next step, previous step (arrows do the same)" },
  { keys: ["n", "N"], words: "next, previous step with the same reason" },
  { keys: ["e", "E"], words: "next, previous episode: stretch of steps with the same reason" },
  { keys: ["PgUp", "PgDn"], words: "a screen earlier, later" },
  { keys: ["Shift+↓", "Shift+↑"], words: "select steps, from the one looked at (PgDn, PgUp: a screen of them)" },
  { keys: ["Home", "End"], words: "first step, last step" },
  { keys: ["↑", "↓", "PgUp", "PgDn"], words: "in Statistics, Compare and the table of requests: scroll" },
  { keys: ["F"], words: "fit: the selection, else the whole run" },
  { keys: ["/"], words: "filter" },
  { keys: ["g"], words: "go to a step, or to a time: 12.5s" },
  { keys: ["1", "2", "3", "4", "5"], words: "Overview, Timeline, Requests, Statistics, Compare" },
  { keys: ["?"], words: "this help" },
  { keys: ["Esc"], words: "back: close, then clear the selection, then the focus" },
];

/** What of a KeyboardEvent matters here. */
export interface Key {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
  shiftKey?: boolean;
}

/** Where the key went down. */
export interface KeyTarget {
  /** A text field: takes every key but Escape. */
  typing: boolean;
  /** A control, or a region that scrolls, with a use of its own for arrows and pages: a list, a slider, a tab. */
  ownArrows: boolean;
  /** Keys of one letter do nothing: for users who control their machine by voice. */
  letters?: "off";
}

/** The action of a key, or null if the key is not for us. */
export function actionOf(key: Key, target: KeyTarget): Action | null {
  if (key.ctrlKey || key.metaKey || key.altKey) return null;
  if (target.letters === "off" && key.key.length === 1) return null;
  if (target.typing && key.key !== "Escape") return null;
  if (target.ownArrows && ARROWS_AND_PAGES.has(key.key)) return null;
  return (key.shiftKey && EXTENDS[key.key]) || (ACTION_OF.get(key.key) ?? null);
}
