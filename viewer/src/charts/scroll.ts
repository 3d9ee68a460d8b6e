/**
 * Scrolling through more lines than a browser can be tall: an element's height is capped, so beyond the cap the
 * scrollbar moves through them in proportion, while wheel and keys still move line by line.
 *
 * Throughout, `count` lines of `line` pixels each are seen in a height of `room` pixels; positions are fractional lines.
 */

/** Well below the some 33.5 million pixels at which browsers cut an element off. */
export const TALLEST = 8_000_000;

/** Height of the element that stands for all lines. */
export function spacerHeight(count: number, room: number, line: number): number {
  return Math.max(Math.min(count * line, TALLEST), room);
}

/** First line in sight at a scroll position. */
export function topAt(count: number, scrollTop: number, room: number, line: number): number {
  const most = lastTop(count, room, line);
  const way = spacerHeight(count, room, line) - room;
  return way > 0 ? Math.min((scrollTop / way) * most, most) : 0;
}

/** The scroll position that shows line `top` first. */
export function scrollFor(count: number, top: number, room: number, line: number): number {
  const most = lastTop(count, room, line);
  return most > 0 ? (clampTop(count, top, room, line) / most) * (spacerHeight(count, room, line) - room) : 0;
}

/** `top`, cut so that the last line ends at the bottom at most. */
export function clampTop(count: number, top: number, room: number, line: number): number {
  return Math.min(Math.max(top, 0), lastTop(count, room, line));
}

function lastTop(count: number, room: number, line: number): number {
  return Math.max(count - room / line, 0);
}
