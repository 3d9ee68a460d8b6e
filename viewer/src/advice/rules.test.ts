/** The advice, against the vectors that the Python implementation shares. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { advise } from "./rules";
import { type Held, type Symptoms, worstOf } from "./symptoms";

type Json = Record<string, unknown>;

const path = resolve(__dirname, "../../../tests/unit/explain/advice_vectors.json");
const { vectors } = JSON.parse(readFileSync(path, "utf-8")) as {
  vectors: { name: string; symptoms: Json; advice: (Json & { lost_s?: number | null; now?: unknown })[] }[];
};
const NUMBERS = [
  ...["requests", "tokenBudget", "maxRunning", "preemptions", "recomputedTokens", "scheduledTokens"],
  ...["localHitRate", "peakKvUse", "tpotP50Ms", "tpotP99Ms", "mixedMs", "decodeMs"],
];

function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

/** Names of the vectors are Python's; those of settings and reasons stay. */
function symptoms(given: Json): Symptoms {
  const empty: Json = {
    jobs: 0,
    adapters: 0,
    mixedSteps: 0,
    decodeSteps: 0,
    requestSeconds: 0,
    guessed: false,
    settings: {},
  };
  for (const name of NUMBERS) empty[name] = null;
  const named = Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value]));
  const reasons: Record<string, Held> = {};
  for (const [name, held] of Object.entries((given["reasons"] ?? {}) as Record<string, Json>)) {
    const worst = held["worst"] as Record<string, number> | undefined;
    const kv = held["kv"] as Json | null | undefined;
    reasons[name] = {
      steps: held["steps"] as number,
      seconds: held["seconds"] as number,
      kvFree: (held["kv_free"] as number | undefined) ?? null,
      kv: kv ? (Object.fromEntries(Object.entries(kv).map(([key, value]) => [camel(key), value])) as Held["kv"]) : null,
      worst: worst
        ? worstOf(worst["running"], worst["held"], worst["used_blocks"] ?? null, worst["total_blocks"] ?? null)
        : null,
    };
  }
  return { ...empty, ...named, reasons } as unknown as Symptoms;
}

describe("advice", () => {
  it("says how a value follows, and nothing where none does", () => {
    const fired = (name: string) =>
      advise(symptoms(vectors.find((vector) => vector.name === name)?.symptoms ?? {})).map(({ to, basis }) => [
        to,
        basis,
      ]);
    expect(fired("memory names a value")).toEqual([
      [
        "what gives 802 KV blocks",
        "At the worst 30 ran and 10 waited: all of them would need about 802 blocks, 1.3 times the 602 that are there.",
      ],
    ]);
    expect(fired("remote-kv fires")).toEqual([[null, ""]]);
  });

  it.each(vectors.map(({ name, ...vector }) => [name, vector] as const))("%s", (_, vector) => {
    const found = advise(symptoms(vector.symptoms)).map(
      ({ steps: _steps, reasons: _reasons, basis: _basis, lostSeconds, to, ...finding }) => ({
        ...finding,
        to,
        lost_s: lostSeconds,
      }),
    );
    const expected = vector.advice.map((finding) => ({
      now: null,
      lost_s: null,
      ...finding,
      to: finding["to"] ? `${finding["to"]}` : null,
    }));
    expect(found).toEqual(expected);
  });
});
