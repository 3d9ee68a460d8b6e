import { afterEach, expect, test, vi } from "vitest";
import { listTraces } from "./traceList";

afterEach(() => vi.unstubAllGlobals());

function answers(pages: Record<string, { rows: string[]; next?: string }>): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (url: string) => {
    asked.push(url);
    const page = pages[url];
    if (!page) return Promise.resolve(new Response("", { status: 500 }));
    const rows = page.rows.map((name) => ({ name, steps: [`/t/${name}.steps.jsonl`] }));
    const headers: Record<string, string> = page.next ? { Link: `<${page.next}>; rel="next"` } : {};
    return Promise.resolve(new Response(JSON.stringify(rows), { headers }));
  });
  return asked;
}

test("a list of several pages is read to its end", async () => {
  const asked = answers({
    "/api/traces": { rows: ["a", "b"], next: "/api/traces?from=1" },
    "/api/traces?from=1": { rows: ["c"], next: "/api/traces?from=2" },
    "/api/traces?from=2": { rows: ["d"] },
  });
  expect((await listTraces()).map(({ name }) => name)).toEqual(["a", "b", "c", "d"]);
  expect(asked).toHaveLength(3);
});

test("only this server's list is followed", async () => {
  const asked = answers({ "/api/traces": { rows: ["a"], next: "https://elsewhere.example/api/traces" } });
  expect(await listTraces()).toHaveLength(1);
  expect(asked).toEqual(["/api/traces"]);
});

test("a page that is missing is a sentence", async () => {
  answers({ "/api/traces": { rows: ["a"], next: "/api/traces?from=1" } });
  await expect(listTraces()).rejects.toThrow("/api/traces answered 500");
});
