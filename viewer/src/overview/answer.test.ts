/** Where the answer comes from: the server, of the steps that are looked at; else nowhere. */

import { afterEach, describe, expect, it, vi } from "vitest";
import type { TraceStore } from "../data/model/trace";
import { answerTo, filterOf } from "./answer";

const store = (source: string) =>
  ({ source, name: "run", rows: 3, steps: { number: Int32Array.of(10, 11, 12) } }) as unknown as TraceStore;
const { signal } = new AbortController();

function served(answer: Response) {
  const asked: string[] = [];
  vi.stubGlobal("location", { protocol: "http:" });
  vi.stubGlobal("fetch", (url: string) => {
    asked.push(url);
    return Promise.resolve(answer);
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

describe("the answer", () => {
  it("is asked for of the whole run, or of the steps that are selected", async () => {
    const said = { code: "stuck", sentence: "No token since 16:01:10 UTC.", causes: [], remedies: [] };
    const asked = served(Response.json({ answer: said, engines: 1 }));
    expect(await answerTo(store("/traces/run.steps.jsonl"), { first: 0, last: 2 }, signal)).toEqual(said);
    served(Response.json({ answer: said, engines: 1 }));
    expect(asked).toEqual(["/api/answer?path=%2Ftraces%2Frun.steps.jsonl"]);
    const again = served(Response.json({ answer: said, engines: 1 }));
    await answerTo(store("/traces/run.steps.jsonl"), { first: 1, last: 2 }, signal);
    expect(again).toEqual(["/api/answer?path=%2Ftraces%2Frun.steps.jsonl&from=11&to=12"]);
  });

  it("says why there is none", async () => {
    served(Response.json({ error: { field: "path", fix: "is gone" } }, { status: 404 }));
    await expect(answerTo(store("/traces/x"), { first: 0, last: 2 }, signal)).rejects.toThrow("path: is gone");
  });

  it("is in a page that was exported, of its own trace and of all of it", async () => {
    vi.stubGlobal("location", { protocol: "file:" });
    const tags: Record<string, unknown> = {
      "tokenyard-answer": { textContent: '{"code":"idle"}' },
      "tokenyard-trace": { dataset: { name: "run" } },
    };
    vi.stubGlobal("document", { getElementById: (id: string) => tags[id] ?? null });
    expect(await answerTo(store("run.steps.jsonl"), { first: 0, last: 2 }, signal)).toEqual({ code: "idle" });
    expect(await answerTo(store("run.steps.jsonl"), { first: 1, last: 2 }, signal)).toBeNull();
    expect(await answerTo({ ...store("x"), name: "dropped" }, { first: 0, last: 2 }, signal)).toBeNull();
  });

  it("leads to the requests that it names", () => {
    expect(filterOf({ kind: "tenant", name: "9d22" })).toBe('tenant:"9d22"');
    expect(filterOf({ kind: "request", name: "hog_t5" })).toBe('req:"hog_t5"');
    expect(filterOf({ kind: "length", name: "16,384" })).toBe("prompt:16384..");
  });
});
