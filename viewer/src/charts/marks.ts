/** Where an axis is marked. */

/** Round numbers between two ends, about `wanted` of them: steps of 1, 2 or 5 times a power of ten. */
export function marks(from: number, to: number, wanted: number): number[] {
  const rough = (to - from) / wanted;
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough) ?? 10 * power;
  const found: number[] = [];
  for (let index = Math.ceil(from / step); index * step <= to; index++) found.push(index * step);
  return found;
}

const TIMES = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600,
];

/**
 * Round times between two ends, in seconds, at most about `wanted`; no closer together than `least`. They are round on a clock that
 * shows `base` at 0.
 */
export function timeMarks(from: number, to: number, wanted: number, least = 0, base = 0): number[] {
  const rough = Math.max((to - from) / wanted, least);
  if (!(rough > 0)) return [];
  const step = TIMES.find((seconds) => seconds >= rough) ?? Math.ceil(rough / 3600) * 3600;
  const found: number[] = [];
  for (let index = Math.ceil((from + base) / step); index * step <= to + base; index++) found.push(index * step - base);
  return found;
}

/** A round number at or above a value: the top of an axis. */
export function roundTop(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const digit of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (digit * power >= value * 0.999) return digit * power;
  return 10 * power;
}
