/** Figures of two runs, and what their difference means. */

import type { Comparison } from "../data/model/comparison";
import { atLeast, percent, signed } from "../format";
import { COUNTS, inUnit, MEANS, type PairText, PERCENT, pairText, timesText } from "./pair";

type Figure = Comparison["figures"][number];

export interface FigureRow extends PairText {
  label: string;
  /** Of A; empty where A is nothing. */
  relative: string;
  verdict: "better" | "worse" | "";
}

/** A change below this share of A is not called better or worse. */
const NOTABLE = 0.005;

export function figureRow(figure: Figure): FigureRow {
  const { a, b, label, unit } = figure;
  const row = { label, ...textsOf(figure) };
  if (figure.atLeast?.includes(true)) {
    const [inA, inB] = (
      [
        ["a", 0],
        ["b", 1],
      ] as const
    ).map(([side, at]) => atLeast(row[side], figure[side], figure.atLeast?.[at]));
    return { label, a: inA, b: inB, difference: "", relative: "", verdict: "" };
  }
  if (a === null || b === null || row.difference === "±0") return { ...row, relative: "", verdict: "" };
  const change = b - a;
  return {
    ...row,
    relative: a !== 0 && unit !== "%" ? signed(change / Math.abs(a), percent) : "",
    verdict: verdictOf(figure, change, a),
  };
}

function textsOf({ a, b, unit }: Figure): PairText {
  const [inA, inB] = [a ?? Number.NaN, b ?? Number.NaN];
  switch (unit) {
    case "":
      return pairText(inA, inB, [a, b].every((value) => value === null || Number.isInteger(value)) ? COUNTS : MEANS);
    case "%":
      return pairText(inA, inB, PERCENT);
    case "ms":
      return timesText(inA / 1000, inB / 1000, "latency");
    case "s":
      return timesText(inA, inB, "total");
    case "tok":
      return pairText(inA, inB, COUNTS);
    default:
      return pairText(inA, inB, inUnit(unit));
  }
}

function verdictOf({ lessIsBetter }: Figure, change: number, a: number): FigureRow["verdict"] {
  if (lessIsBetter === null || Math.abs(change) <= NOTABLE * Math.abs(a) || change === 0) return "";
  return change < 0 === lessIsBetter ? "better" : "worse";
}
