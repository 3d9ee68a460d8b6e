/** Numbers made readable, with the wording of `tokenyard report` (units.py): the page and the terminal agree. */

import type { Outcomes, Spread } from "./data/model/statistics";

const DASH = "–";

function known(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** `1,234.5` with a fixed number of decimals, whatever the language of the browser; halves go to the even digit. */
export function fixed(value: number, decimals: number): string {
  const [whole, rest] = toEven(Math.abs(value), decimals).toFixed(decimals).split(".");
  const grouped = (whole ?? "0").replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const sign = value < 0 && /[1-9]/.test(grouped + (rest ?? "")) ? "-" : "";
  return sign + grouped + (rest ? `.${rest}` : "");
}

/** Python rounds an exact half to the even digit, JavaScript up: both print the same numbers here. */
function toEven(value: number, decimals: number): number {
  const scaled = value * 10 ** decimals;
  const half = scaled % 1 === 0.5 && Number.isInteger(value * 2 ** (decimals + 1));
  return half ? (2 * Math.round(scaled / 2)) / 10 ** decimals : value;
}

/** 12,031; a dash if it is not known. */
export function count(value: number | null | undefined): string {
  return known(value) ? fixed(value, 0) : DASH;
}

/** 12.5 for a mean. */
export function mean(value: number | null | undefined): string {
  return known(value) ? fixed(value, 1) : DASH;
}

/** 950, 342K, 1.5M. */
export function shortCount(value: number): string {
  let number = value;
  let unit = "";
  for (const larger of ["K", "M", "G"]) {
    if (number < 999.5) break;
    number /= 1000;
    unit = larger;
  }
  const text = unit && number < 9.95 ? fixed(number, 1).replace(/\.0$/, "") : fixed(number, 0);
  return text + unit;
}

/** 41.3 %. */
export function percent(share: number | null | undefined): string {
  return known(share) ? `${fixed(100 * share, 1)} %` : DASH;
}

/** 0.42 s, 17.3 s, 8 min 05 s, 2 h 14 min. */
export function duration(seconds: number | null | undefined): string {
  if (!known(seconds)) return DASH;
  if (seconds < 100) return `${fixed(seconds, seconds < 10 ? 2 : 1)} s`;
  const whole = Math.round(toEven(seconds, 0));
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${count(Math.floor(minutes / 60))} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** A moment of a run: 4.21 s, 7:32, 1:02:03. */
export function moment(seconds: number): string {
  if (!known(seconds)) return DASH;
  if (Math.abs(seconds) < 60) return `${fixed(seconds, Math.abs(seconds) < 10 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3_600), Math.floor(whole / 60) % 60];
  const two = (value: number) => String(value).padStart(2, "0");
  return hours > 0 ? `${count(hours)}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** A mark of an axis of time: 0, 0.25 s, 30 s, 7:30, 7:30.5. */
export function shortMoment(seconds: number): string {
  const value = Math.round(seconds * 1e4) / 1e4;
  if (value === 0) return "0";
  if (Math.abs(value) < 60) return `${value} s`;
  const whole = Math.trunc(value);
  return (
    moment(whole) +
    Math.abs(value - whole)
      .toFixed(4)
      .slice(1)
      .replace(/\.?0+$/, "")
  );
}

/** A moment to the millisecond: 12.345 s, 3:25.436. */
export function exactMoment(seconds: number): string {
  if (!known(seconds)) return DASH;
  if (Math.abs(seconds) < 60) return `${fixed(seconds, 3)} s`;
  const thousandths = Math.round(seconds * 1000);
  const whole = Math.trunc(thousandths / 1000);
  return `${moment(whole)}.${String(Math.abs(thousandths - 1000 * whole)).padStart(3, "0")}`;
}

/** 0.42 ms, 17.3 ms, 1.25 s, 717.3 s; of a number of seconds. */
export function milliseconds(seconds: number | null | undefined): string {
  if (!known(seconds)) return DASH;
  const value = seconds * 1000;
  const [number, unit] = Math.abs(value) < 1000 ? [value, "ms"] : [seconds, "s"];
  const size = Math.abs(number);
  return `${fixed(number, size < 10 ? 2 : size < 1000 ? 1 : 0)} ${unit}`;
}

/** A latency in seconds: with a sign where it is a lower bound, a dash where that is 0; `isNever`: of refused ones alone. */
export function figureOf(
  spread: Spread | null | undefined,
  which: "mean" | "p50" | "p90" | "p95" | "p99" | "max",
  isNever = false,
): string {
  if (!spread && isNever) return "never";
  return atLeast(milliseconds(spread?.[which]), spread?.[which], spread?.atLeast?.includes(which));
}

/** The text of a value, as a lower bound if it is one. */
export function atLeast(text: string, value: number | null | undefined, isBound = false): string {
  if (!isBound) return text;
  return value === null ? "never" : value === 0 ? DASH : `≥${text}`;
}

/** `120 arrived, 95 served, 25 unfinished`. */
export function outcomesText(outcomes: Outcomes | undefined): string {
  return Object.entries(outcomes ?? {})
    .filter(([, number], at) => at < 2 || number > 0)
    .map(([name, number]) => `${count(number)} ${name}`)
    .join(", ");
}

/** 512 B, 20 kB, 348 MB: decimal, as disks and downloads are counted. */
export function bytes(value: number | null | undefined): string {
  if (!known(value)) return DASH;
  let number = value;
  let unit = "B";
  for (const larger of ["kB", "MB", "GB"]) {
    if (number < 999.5) break;
    number /= 1000;
    unit = larger;
  }
  return `${fixed(number, unit !== "B" && number < 9.95 ? 1 : 0)} ${unit}`;
}

/** A difference with its sign: +12, −3, ±0. The minus is the typographic one, as wide as the plus. */
export function signed(value: number, text: (size: number) => string): string {
  if (value === 0) return "±0";
  return (value > 0 ? "+" : "−") + text(Math.abs(value));
}

/** `one step`, `412 steps`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Seconds of a typed time: 12.5s, 250 ms, 3:20, 1:02:03; null if it is none. */
export function secondsTyped(text: string): number | null {
  const number = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)\s*$/.exec(text);
  if (number) return Number(number[1]) * { ms: 0.001, s: 1, min: 60, h: 3_600 }[number[2] as "s"];
  const clock = /^\s*(?:(\d+):)?(\d+):(\d{1,2}(?:\.\d+)?)\s*$/.exec(text);
  return clock ? Number(clock[1] ?? 0) * 3_600 + Number(clock[2]) * 60 + Number(clock[3]) : null;
}

/** 1st, 2nd, 3rd, 14th. */
export function ordinal(place: number): string {
  const tens = place % 100;
  const ending = tens > 10 && tens < 14 ? "th" : (["th", "st", "nd", "rd"][place % 10] ?? "th");
  return `${count(place)}${ending}`;
}
