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
