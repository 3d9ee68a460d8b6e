/** Two values beside each other: one unit and one precision, so that the difference is that of what is shown. */

import { count, duration, fixed, percent, signed } from "../format";

export interface PairText {
  a: string;
  b: string;
  difference: string;
}

/** How the values of a row are rounded and written. */
export interface Scale {
  round(value: number): number;
  text(value: number): string;
  /** Of a difference, if it is not that of a value. */
  change?(size: number): string;
}

const decimals = (places: number, write: (text: string) => string): Scale => ({
  round: (value) => Number(fixed(value, places).replaceAll(",", "")),
  text: (value) => write(fixed(value, places)),
});

export const COUNTS: Scale = { round: Math.round, text: count };
export const MEANS = decimals(2, (text) => text);
/** Of shares in percent; they differ in percentage points. */
export const PERCENT: Scale = {
  ...decimals(1, (text) => `${text} %`),
  text: (value) => percent(value / 100),
  change: (size) => `${fixed(size, 1)} pp`,
};

export function inUnit(unit: string): Scale {
  return decimals(2, (text) => `${text} ${unit}`);
}

/** From how many seconds on a time is written with minutes: latencies later than totals, as on the other tabs. */
const MINUTES = { latency: 1_000, total: 100 } as const;

/** Of seconds, by the longest time of the row. */
export function timesUpTo(longest: number, kind: keyof typeof MINUTES): Scale {
  if (longest < 1) {
    const inMs = decimals(longest < 0.01 ? 2 : 1, (text) => `${text} ms`);
    return { round: (value) => inMs.round(value * 1000), text: inMs.text };
  }
  if (longest < MINUTES[kind]) return decimals(longest < 100 ? 2 : 1, (text) => `${text} s`);
  const step = longest < 3_600 ? 1 : 60;
  return {
    round: (value) => (step === 1 ? Math.round(value) : Math.floor(Math.round(value) / step) * step),
    text: (value) => (value < 100 ? `${count(value)} s` : duration(value)),
  };
}

/** Scales of times take the values as they come, in seconds; NaN is not known. */
export function pairText(a: number, b: number, scale: Scale): PairText {
  const [inA, inB] = [a, b].map((value) => (Number.isNaN(value) ? Number.NaN : scale.round(value)));
  const text = (value: number) => (Number.isNaN(value) ? "–" : scale.text(value));
  const difference = inB - inA;
  // 0.3 - 0.1 is a little less than 0.2.
  const rounded = Math.abs(difference) < 1e-9 ? 0 : difference;
  return {
    a: text(inA),
    b: text(inB),
    difference: Number.isNaN(difference) ? "–" : signed(rounded, scale.change ?? scale.text),
  };
}

/** Of seconds that need not be known. */
export function timesText(a: number, b: number, kind: keyof typeof MINUTES): PairText {
  return pairText(a, b, timesUpTo(Math.max(...[a, b].filter((value) => !Number.isNaN(value)), 0), kind));
}
