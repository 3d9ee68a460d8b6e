import { expect, test } from "vitest";
import { MISSING } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { requestFacts } from "./facts";

function store(change: Record<string, unknown> = {}): TraceStore {
  return {
    rows: 1,
    start: null,
    adapters: [],
    tenants: [],
    spans: { starts: Int32Array.of(0, 0), kind: new Uint8Array(0), last: new Int32Array(0) },
    steps: { ts: Float64Array.of(100) },
    finishReasons: ["length"],
    requests: {
      arrivalTime: Float64Array.of(101),
      firstScheduledTime: Float64Array.of(101.5),
      firstTokenTime: Float64Array.of(102),
      finishedTime: Float64Array.of(104),
      timesRecorded: Uint8Array.of(1),
      outputTokens: Int32Array.of(5),
      promptTokens: Int32Array.of(1000),
      maxTokens: Int32Array.of(MISSING),
      numPreemptions: Int32Array.of(0),
      recomputedTokens: Int32Array.of(MISSING),
      priority: Int32Array.of(0),
      adapter: Int32Array.of(-1),
      tenant: Int32Array.of(-1),
      finishReason: Int32Array.of(0),
      lookupRow: Int32Array.of(0),
      lookupPromptTokens: Int32Array.of(1000),
      localHitTokens: Int32Array.of(250),
      externalHitTokens: Int32Array.of(MISSING),
      ...change,
    },
  } as unknown as TraceStore;
}

test("times are those of the report, and what the trace does not tell is left out", () => {
  const facts = Object.fromEntries(requestFacts(store(), 0).map(({ name, value }) => [name, value]));
  expect(facts).toEqual({
    arrived: "1.00 s",
    queue: "500.0 ms",
    TTFT: "1.00 s",
    TPOT: "500.0 ms",
    E2E: "3.00 s",
    "prompt tokens": "1,000",
    "output tokens": "5",
    "prefix hit, local": "250 (25.0 %)",
    preemptions: "0",
    priority: "0",
    status: "finished (length)",
  });
});

test("a request that did not come far has few figures", () => {
  const nothing = Float64Array.of(Number.NaN);
  const facts = requestFacts(
    store({
      firstScheduledTime: nothing,
      firstTokenTime: nothing,
      finishedTime: nothing,
      outputTokens: Int32Array.of(1),
      finishReason: Int32Array.of(-1),
      lookupRow: Int32Array.of(-1),
    }),
    0,
  );
  expect(facts.map(({ name }) => name)).toEqual([
    "arrived",
    "prompt tokens",
    "output tokens",
    "preemptions",
    "priority",
    "status",
  ]);
});
