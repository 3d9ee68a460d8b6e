/** The waiting-time split, against the vectors that the Python implementation shares. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { StepsReader } from "./steps";
import { requestOf, storeOf } from "./store";
import { waitingSplit } from "./waiting";

interface Life {
  arrived_us: number;
  first_scheduled_us: number | null;
  until_us: number;
  waited_us: number;
  phases: Record<string, number>;
  reasons: { reason: string; place: string; us: number }[];
  spans: { state: string; reason: string; place: string; start_us: number; end_us: number }[];
  reconstructed: boolean;
}

const path = resolve(__dirname, "../../../tests/unit/explain/why_vectors.json");
const { vectors } = JSON.parse(readFileSync(path, "utf-8")) as {
  vectors: { name: string; lines: unknown[]; expect: Record<string, Life> }[];
};

describe("the waiting time of a request", () => {
  for (const { name, lines, expect: lives } of vectors) {
    it(name, () => {
      const reader = new StepsReader("vector");
      reader.push(new TextEncoder().encode(lines.map((line) => JSON.stringify(line)).join("\n")));
      reader.end();
      const store = storeOf(reader.tables(false), name, "vector");
      for (const [id, life] of Object.entries(lives)) {
        const split = waitingSplit(store, requestOf(store, id));
        const spans = split.spans.map(({ state, reason, place, startUs, endUs }) => [
          state,
          reason,
          place,
          startUs,
          endUs,
        ]);
        expect({
          id,
          spans,
          until: split.untilUs,
          arrived: split.arrivedUs,
          scheduled: split.firstScheduledUs,
        }).toEqual({
          id,
          spans: life.spans.map(({ state, reason, place, start_us, end_us }) => [
            state,
            reason,
            place,
            start_us,
            end_us,
          ]),
          until: life.until_us,
          arrived: life.arrived_us,
          scheduled: life.first_scheduled_us,
        });
        expect(split.us).toBe(life.waited_us);
        // Each step once, though the wait for a step to end shares it with the reason of the next.
        const rows = split.spans.flatMap(({ firstRow, lastRow }) =>
          Array.from({ length: lastRow - firstRow + 1 }, (_, at) => firstRow + at),
        );
        expect(split.steps).toBe(new Set(rows).size);
        expect(split.parts.reduce((total, part) => total + part.us, 0)).toBe(split.us);
        const sorted = (parts: { reason: string; place: string; us: number }[]) =>
          parts.map(({ reason, place, us }) => `${reason} ${place} ${us}`).sort();
        expect(sorted(split.parts)).toEqual(sorted(life.reasons));
      }
    });
  }
});
