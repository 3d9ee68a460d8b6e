/** Colours of what a request does and of what blocks are used for: the same in lanes and in charts. */

import type { PhaseKind } from "../data/model/lives";
import type { Hatch, ThemeName, Tone } from "../palette";

export interface Look {
  /** Used in legends and announcements. */
  words: string;
  /** Beside the colour, where a hatch is too fine. */
  sign: string;
  hatch: Hatch;
  light: Tone;
  dark: Tone;
  /** Outline; none without it. */
  edge?: Record<ThemeName, string>;
}

const BLACK = "#111417";
const WHITE = "#ffffff";

export const PHASES: Record<PhaseKind, Look> = {
  queued: {
    words: "queued",
    sign: "░",
    hatch: "dots",
    light: { fill: "#f2e6c8", ink: BLACK },
    dark: { fill: "#4d4328", ink: WHITE },
    edge: { light: "#c2ad74", dark: "#7d6f45" },
  },
  prefill: {
    words: "prefill",
    sign: "▒",
    hatch: "rising",
    light: { fill: "#cfe0f1", ink: BLACK },
    dark: { fill: "#26405c", ink: WHITE },
    edge: { light: "#cf222e", dark: "#ff7b72" },
  },
  decode: {
    words: "decode",
    sign: "█",
    hatch: "solid",
    light: { fill: "#6f9bc8", ink: BLACK },
    dark: { fill: "#5582b3", ink: WHITE },
  },
  preempted: {
    words: "preempted",
    sign: "✕",
    hatch: "falling",
    light: { fill: "#ffffff", ink: "#d55e00" },
    dark: { fill: "#14171b", ink: "#ff8c42" },
    edge: { light: "#d55e00", dark: "#ff8c42" },
  },
};

/** Blocks of a finished turn that a policy keeps. */
export const PINNED: Look = {
  words: "pinned",
  sign: "◆",
  hatch: "rising",
  light: { fill: "#a9b4c0", ink: BLACK },
  dark: { fill: "#5f6b78", ink: WHITE },
};

/** Blocks that no request holds. */
export const FREE: Look = {
  words: "free",
  sign: " ",
  hatch: "solid",
  light: { fill: "#eceff3", ink: BLACK },
  dark: { fill: "#262c33", ink: WHITE },
};

/** Found in the KV cache, found by a connector. */
export const HITS: Record<"local" | "external", Look> = {
  local: { ...PHASES.decode, words: "local", hatch: "solid" },
  external: {
    words: "external",
    sign: "▒",
    hatch: "falling",
    light: { fill: "#56b4e9", ink: BLACK },
    dark: { fill: "#56b4e9", ink: BLACK },
  },
};

const STRIPES: Partial<Record<Hatch, string>> = {
  rising: "135deg",
  falling: "45deg",
};

/** The look as an inline style, with its hatch as stripes. */
export function lookStyle(look: Look, theme: ThemeName): Record<string, string> {
  const tone = look[theme];
  const style: Record<string, string> = { backgroundColor: tone.fill };
  const angle = STRIPES[look.hatch];
  const ink = `color-mix(in srgb, ${tone.ink} 45%, transparent)`;
  if (angle) style["backgroundImage"] = `repeating-linear-gradient(${angle}, transparent 0 3px, ${ink} 3px 4px)`;
  if (look.hatch === "dots") {
    style["backgroundImage"] = `radial-gradient(${ink} 1px, transparent 1.2px)`;
    style["backgroundSize"] = "4px 4px";
  }
  if (look.edge) style["border"] = `1px solid ${look.edge[theme]}`;
  return style;
}
