/** Figures of two runs, and what their difference means. */

import type { Comparison } from "../data/model/comparison";
import { count, duration, fixed, mean, milliseconds, percent, signed } from "../format";

type Figure = Comparison["figures"][number];

export interface FigureRow {
  label: string;
  a: string;
  b: string;
  difference: string;
  /** Of A; empty where A is nothing. */
  relative: string;
  verdict: "better" | "worse" | "";
}

/** A change below this share of A is not called better or worse. */
const NOTABLE = 0.005;

export function figureRow(figure: Figure): FigureRow {
  const { a, b, label, unit } = figure;
  const text = textOf(unit);
  const row = { label, a: text(a), b: text(b) };
  if (a === null || b === null) return { ...row, difference: "–", relative: "", verdict: "" };
  const change = b - a;
  return {
    ...row,
    difference: unit === "%" ? points(change) : signed(change, text),
    relative: a !== 0 && unit !== "%" && change !== 0 ? signed(change / Math.abs(a), percent) : "",
    verdict: verdictOf(figure, change, a),
  };
}

function textOf(unit: string): (value: number | null) => string {
  switch (unit) {
    case "":
      return (value) => (value === null || Number.isInteger(value) ? count(value) : mean(value));
    case "%":
      return (value) => percent(value === null ? null : value / 100);
    case "ms":
      return (value) => milliseconds(value === null ? null : value / 1000);
    case "s":
      return duration;
    case "tok":
      return count;
    default:
      return (value) => (value === null ? "–" : `${fixed(value, 2)} ${unit}`);
  }
}

/** Percentages differ in percentage points. */
function points(change: number): string {
  return signed(Math.round(change * 10) / 10, (size) => `${fixed(size, 1)} pp`);
}

function verdictOf({ lessIsBetter }: Figure, change: number, a: number): FigureRow["verdict"] {
  if (lessIsBetter === null || Math.abs(change) <= NOTABLE * Math.abs(a) || change === 0) return "";
  return change < 0 === lessIsBetter ? "better" : "worse";
}
