import { expect, test } from "vitest";
import {
  bytes,
  count,
  duration,
  fixed,
  mean,
  milliseconds,
  percent,
  plural,
  shortCount,
  shortMoment,
  signed,
} from "./format";

test("counts are grouped, and what is not known is a dash", () => {
  expect(count(12031)).toBe("12,031");
  expect(count(1234567.4)).toBe("1,234,567");
  expect(count(null)).toBe("–");
  expect(mean(Number.NaN)).toBe("–");
  expect(fixed(-0.001, 2)).toBe("0.00");
  expect(fixed(-1234.5, 1)).toBe("-1,234.5");
});

test("short counts carry one decimal below ten", () => {
  expect([950, 1500, 342_000, 1_500_000, 999_600].map(shortCount)).toEqual(["950", "1.5K", "342K", "1.5M", "1M"]);
});

test("durations change their unit with their size", () => {
  expect([0.42, 17.3, 485, 8040].map(duration)).toEqual(["0.42 s", "17.3 s", "8 min 05 s", "2 h 14 min"]);
  expect([0.00042, 0.0173, 1.25, 717.3].map(milliseconds)).toEqual(["0.42 ms", "17.3 ms", "1.25 s", "717.3 s"]);
});

test("shares, bytes, differences and plurals", () => {
  expect(percent(0.4129)).toBe("41.3 %");
  expect([512, 20_000, 348_400_000, 1500].map(bytes)).toEqual(["512 B", "20 kB", "348 MB", "1.5 kB"]);
  expect([signed(12, count), signed(-3, count), signed(0, count)]).toEqual(["+12", "−3", "±0"]);
  expect([plural(1, "step"), plural(412, "step"), plural(0, "entry", "entries")]).toEqual([
    "1 step",
    "412 steps",
    "0 entries",
  ]);
});

test("halves go to the even digit, as in Python", () => {
  expect([0.5, 1.5, 2.5, 3.5].map((value) => fixed(value, 0))).toEqual(["0", "2", "2", "4"]);
  expect([0.25, 0.35, 0.75].map((value) => fixed(value, 1))).toEqual(["0.2", "0.3", "0.8"]);
  expect([120.5, 121.5, 121.6].map(duration)).toEqual(["2 min 00 s", "2 min 02 s", "2 min 02 s"]);
});

test("marks of an axis of time tell neighbours apart", () => {
  expect([0, 0.25, 30, 60, 450, 450.5, 3_725].map(shortMoment)).toEqual([
    "0",
    "0.25 s",
    "30 s",
    "1:00",
    "7:30",
    "7:30.5",
    "1:02:05",
  ]);
});
