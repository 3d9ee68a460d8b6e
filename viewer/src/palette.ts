/**
 * Colours, each with one meaning everywhere, and what doubles each of them: a letter or a pattern.
 *
 * The hues are those of Okabe and Ito, which people with any of the common kinds of colour blindness distinguish. Red
 * means "blocked" and nothing else; the prefill outline is red because the format's description says so, and it is an
 * outline.
 */

import type { PillKind } from "./data/model/moment";
import type { ReasonFamily } from "./data/model/reasons";
import { FAMILIES as WORDS } from "./generated/vocabulary";

export type ThemeName = "light" | "dark";
export type Hatch = "solid" | "rising" | "falling" | "vertical" | "horizontal" | "dots" | "cross";

/** A fill with what is legible on it. */
export interface Tone {
  fill: string;
  ink: string;
}

export interface Meaning {
  /** Stands in the swatch, and in every place wide enough for it. */
  letter: string;
  /** Drawn over the fill where a letter has no room. */
  hatch: Hatch;
  light: Tone;
  dark: Tone;
  /** In a legend. */
  words: string;
}

const BLACK = "#111417";
const WHITE = "#ffffff";
const same = (fill: string, ink: string): Pick<Meaning, "light" | "dark"> => ({
  light: { fill, ink },
  dark: { fill, ink },
});

export const FAMILIES: Record<ReasonFamily, Meaning> = {
  tokens: { letter: "T", hatch: "rising", ...same("#e69f00", BLACK), words: WORDS.tokens },
  memory: { letter: "K", hatch: "solid", ...same("#0072b2", WHITE), words: WORDS.memory },
  sequences: { letter: "S", hatch: "vertical", ...same("#cc79a7", BLACK), words: WORDS.sequences },
  order: { letter: "F", hatch: "dots", ...same("#f0e442", BLACK), words: WORDS.order },
  preempted: { letter: "P", hatch: "falling", ...same("#d55e00", BLACK), words: WORDS.preempted },
  dependency: { letter: "D", hatch: "horizontal", ...same("#56b4e9", BLACK), words: WORDS.dependency },
  healthy: {
    letter: "H",
    hatch: "solid",
    light: { fill: "#9bd6c2", ink: BLACK },
    dark: { fill: "#1d6b55", ink: WHITE },
    words: WORDS.healthy,
  },
  idle: {
    letter: "I",
    hatch: "solid",
    light: { fill: "#dfe3e8", ink: BLACK },
    dark: { fill: "#363d45", ink: WHITE },
    words: WORDS.idle,
  },
  unknown: {
    letter: "?",
    hatch: "cross",
    light: { fill: "#b4bbc3", ink: BLACK },
    dark: { fill: "#5a646e", ink: WHITE },
    words: WORDS.unknown,
  },
};

export const PILLS: Record<PillKind, Meaning> = {
  running: {
    letter: "R",
    hatch: "solid",
    light: { fill: "#dde7f3", ink: BLACK },
    dark: { fill: "#2a3a4d", ink: "#eef3f8" },
    words: "running: granted more tokens",
  },
  new: {
    letter: "N",
    hatch: "solid",
    light: { fill: "#9bd6c2", ink: BLACK },
    dark: { fill: "#1d6b55", ink: WHITE },
    words: "new: admitted for the first time",
  },
  resumed: {
    letter: "S",
    hatch: "rising",
    light: { fill: "#c9ecdf", ink: BLACK },
    dark: { fill: "#174638", ink: WHITE },
    words: "resumed: admitted again",
  },
  preempted: { letter: "X", hatch: "falling", ...same("#d55e00", BLACK), words: "preempted: lost its blocks" },
  "skipped-run": {
    letter: "0",
    hatch: "cross",
    light: { fill: "#d3d7dc", ink: BLACK },
    dark: { fill: "#454d56", ink: WHITE },
    words: "skipped-run: running, got no tokens",
  },
  waiting: {
    letter: "W",
    hatch: "solid",
    light: { fill: "#f7f1e3", ink: BLACK },
    dark: { fill: "#3a3426", ink: "#f6f0e2" },
    words: "waiting: not admitted",
  },
};

/** Overlays of a pill: they come on top of its kind. */
export const OVERLAYS = {
  pinned: { letter: "◆", words: "pinned: a policy keeps its job's blocks" },
  prefill: { letter: "p", words: "prefill: red outline, its prompt is not computed yet" },
} as const;

/** A flame, 10 wide and 12 high: at least nine tenths of the token budget are spent. */
export const FLAME_PATH =
  "M5 0C6 3 9 4.5 9 8A4 4 0 0 1 1 8C1 6.5 1.8 5.4 2.6 4.6C2.8 5.8 3.3 6.3 4 6.6C3.6 4.2 4 2 5 0Z";

/** Everything else that a canvas draws. The DOM has the same as CSS variables. */
export interface Surface {
  page: string;
  raised: string;
  text: string;
  quiet: string;
  rule: string;
  accent: string;
  focus: string;
  stripe: string;
  blocked: Tone;
  prefill: string;
  occupancy: string;
  /** Bars of plain amounts. */
  bar: string;
  hot: string;
}

export const SURFACES: Record<ThemeName, Surface> = {
  light: {
    page: "#ffffff",
    raised: "#f5f6f8",
    text: "#1a1e23",
    quiet: "#535c66",
    rule: "#d6dbe1",
    accent: "#0a5cad",
    focus: "#dcebfa",
    stripe: "#fafbfc",
    blocked: { fill: "#8b1414", ink: WHITE },
    prefill: "#cf222e",
    occupancy: "#1a1e23",
    bar: "#8796a6",
    hot: "#a33a00",
  },
  dark: {
    page: "#14171b",
    raised: "#1c2126",
    text: "#e8ebee",
    quiet: "#a3adb7",
    rule: "#343b43",
    accent: "#76b8ff",
    focus: "#1f3245",
    stripe: "#171b1f",
    blocked: { fill: "#9e1b1b", ink: WHITE },
    prefill: "#ff7b72",
    occupancy: "#e8ebee",
    bar: "#748290",
    hot: "#ffa657",
  },
};

/** Custom properties for the root element, so that style sheets and canvases draw with the same colours. */
export function cssVariables(theme: ThemeName): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of Object.entries(SURFACES[theme])) {
    if (typeof value === "string") found[`--${name}`] = value;
    else Object.assign(found, { [`--${name}`]: value.fill, [`--${name}-ink`]: value.ink });
  }
  for (const [prefix, meanings] of [["family", FAMILIES] as const, ["pill", PILLS] as const]) {
    for (const [name, meaning] of Object.entries(meanings)) {
      found[`--${prefix}-${name}`] = meaning[theme].fill;
      found[`--${prefix}-${name}-ink`] = meaning[theme].ink;
    }
  }
  return found;
}
