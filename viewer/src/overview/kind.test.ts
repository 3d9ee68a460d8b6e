import { describe, expect, it } from "vitest";
import type { Asked } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { kindWords, sentWords } from "./kind";

const NOTHING: Asked = { prompts: 0, promptTokens: 0, answers: 0, outputTokens: 0, items: 0, itemTokens: 0 };

describe("what kind of requests", () => {
  it("tells prompts and answers on average, whatever they had of others", () => {
    const asked = { ...NOTHING, prompts: 37, promptTokens: 37 * 3_416, answers: 36, outputTokens: 36 * 1_036 };
    expect(kindWords(asked)).toBe(" (prompts of about 3.4K tokens, answers of about 1K)");
    expect(kindWords({ ...asked, answers: 0 })).toBe(" (prompts of about 3.4K tokens)");
    expect(kindWords({ ...NOTHING, prompts: 1, promptTokens: 20_000, answers: 1, outputTokens: 4 })).toBe(
      " (a prompt of 20K tokens, an answer of 4)",
    );
    expect(kindWords(NOTHING)).toBe("");
  });

  it("names images where they are a noticeable part of the prompts", () => {
    const asked = { ...NOTHING, prompts: 20, promptTokens: 220_000, answers: 20, outputTokens: 700 };
    expect(kindWords({ ...asked, items: 91, itemTokens: 217_800 })).toBe(
      " (prompts of about 11K tokens, 99.0 % of them images or clips: 4.5 each; answers of about 35)",
    );
    expect(kindWords({ ...asked, items: 160, itemTokens: 110_000 })).toContain(
      "50.0 % of them images or clips: 8 each",
    );
    expect(kindWords({ ...asked, items: 1, itemTokens: 1_200 })).toBe(
      " (prompts of about 11K tokens, answers of about 35)",
    );
  });
});

describe("when they were sent", () => {
  const store = {
    ...{ rows: 2, version: 1 },
    start: { ts: 0, clockZero: null },
    steps: { ts: Float64Array.of(0, 500), completedTs: Float64Array.of(1, 501) },
    requests: { finishedTime: new Float64Array() },
  } as unknown as TraceStore;

  it("says it of those who came for a while", () => {
    expect(sentWords(store, { all: 37, from: 161.3, to: 229.8 })).toBe("; all 37 were sent from 2:41 to 3:50");
    expect(sentWords(store, { all: 4, from: 161.3, to: 161.4 })).toBe("; all 4 were sent at 2:41");
    expect(sentWords(store, { all: 1, from: 161.3, to: 161.3 })).toBe("; it was sent at 2:41");
  });

  it("says nothing of those who always come, and where it is not known", () => {
    expect(sentWords(store, { all: 800, from: 0.1, to: 500 })).toBe("");
    expect(sentWords(store, { all: 3, from: Number.NaN, to: Number.NaN })).toBe("");
  });
});
