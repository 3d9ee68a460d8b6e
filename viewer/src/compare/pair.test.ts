import { expect, test } from "vitest";
import { timesText } from "./pair";

const texts = (a: number, b: number, kind: "latency" | "total") => Object.values(timesText(a, b, kind));

test("the longest time of a row says its unit and precision", () => {
  expect(texts(0.004, 0.0021, "latency")).toEqual(["4.00 ms", "2.10 ms", "−1.90 ms"]);
  expect(texts(0.0548, 0, "total")).toEqual(["54.8 ms", "0.0 ms", "−54.8 ms"]);
  expect(texts(64.9, 154.84, "latency")).toEqual(["64.9 s", "154.8 s", "+89.9 s"]);
});

test("totals have minutes from 100 s on, latencies from 1,000 s on, and hours are cut as elsewhere", () => {
  expect(texts(3394.4, 3187.1, "total")).toEqual(["56 min 34 s", "53 min 07 s", "−3 min 27 s"]);
  expect(texts(12, 1200, "latency")).toEqual(["12 s", "20 min 00 s", "+19 min 48 s"]);
  expect(texts(7259, 3600, "total")).toEqual(["2 h 00 min", "1 h 00 min", "−1 h 00 min"]);
});

test("what is not known has no difference, and what looks the same none either", () => {
  expect(texts(Number.NaN, 2, "latency")).toEqual(["–", "2.00 s", "–"]);
  expect(texts(2.001, 2.004, "latency")).toEqual(["2.00 s", "2.00 s", "±0"]);
});
