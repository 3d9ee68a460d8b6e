import { expect, test } from "vitest";
import type { Blame, Culprit } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { sharedBy } from "./words";

const STORE = { shown: [{ name: "token_budget" }] } as unknown as TraceStore;

function blame(unnamed: number): Blame {
  const culprits = [0, 1, 2].map((request) => ({ request, had: "tokens", seconds: 1, share: 0.01 }));
  const totals = { tokens: 100, seat: 0, blocks: 0, head: 0, slot: 0 };
  return {
    range: { first: 0, last: 9 },
    totals: totals as unknown as Blame["totals"],
    unnamed: { ...totals, tokens: unnamed } as unknown as Blame["unnamed"],
    culprits: culprits as unknown as Culprit[],
    groups: [],
    victims: null,
  };
}

test("where the trace names most, that no request stands out is said with the largest part", () => {
  expect(sharedBy(STORE, { shown: 0 }, blame(2))).toBe(
    "no request stands out: 3 requests shared it, the largest part is 1.0 %",
  );
});

test("where much went to requests without a name, nothing is said of the others", () => {
  expect(sharedBy(STORE, { shown: 0 }, blame(70))).toBe(
    "who had it is not known: 70.0 % of it went to requests that the trace does not name",
  );
});
