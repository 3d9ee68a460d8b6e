import { describe, expect, it, test } from "vitest";
import { interval, keysOfSteps, parseFilter, toggleTerm, unitsOf } from "./filter";
import { secondsBetween } from "./times";

const brief = (text: string) =>
  parseFilter(text).terms.map(
    (term) => `${term.negated ? "-" : ""}${term.key}=${term.value || `${term.from}..${term.to}`}`,
  );

describe("parseFilter", () => {
  it("reads keys, words, quotes and minus", () => {
    expect(brief('job:SWE_0011 -req:t9 reason:kv "two words" step:1..5')).toEqual([
      "job=swe_0011",
      "-req=t9",
      "reason=kv",
      "text=two words",
      "step=1..5",
    ]);
  });

  it("names the keys where one is unknown, and takes text with a colon in quotes", () => {
    const filter = parseFilter("swe:0011 job:a");
    expect(filter.terms.map((term) => term.key)).toEqual(["job"]);
    expect(filter.problems).toHaveLength(1);
    expect(filter.problems[0]).toMatch(/^swe is no key\. Keys: job, req, reason, .*"swe:0011"$/);
    expect(brief('"swe:0011" -"a:b"')).toEqual(["text=swe:0011", "-text=a:b"]);
    expect(parseFilter("constructor:x").problems).toHaveLength(1);
  });

  it("names what it does not understand and goes on", () => {
    const filter = parseFilter("step:abc job: reason:x");
    expect(filter.terms.map((term) => term.key)).toEqual(["reason"]);
    expect(filter.problems).toHaveLength(2);
    expect(filter.problems[0]).toContain("step:abc");
  });

  it.each(["", "   ", '"', "-", ":", '-""', "\u202ejob:x", "step:", "<script>"])("survives %j", (text) => {
    expect(() => parseFilter(text)).not.toThrow();
  });

  it("reads an unclosed quote to the end", () => {
    expect(brief('job:"a b')).toEqual(["job=a b"]);
  });
});

describe("interval", () => {
  it.each([
    ["120", [120, 120]],
    ["1,000..2_000", [1000, 2000]],
    ["7..", [7, Number.POSITIVE_INFINITY]],
    ["..7", [Number.NEGATIVE_INFINITY, 7]],
    ["9..3", [3, 9]],
  ])("%s", (text, range) => expect(interval(text)).toEqual(range));
  it.each(["", "..", "a", "1...2", "1..2..3", "-5"])("refuses %j", (text) => expect(interval(text)).toBeNull());
});

describe("secondsBetween", () => {
  it.each([
    ["30s..", [30, Number.POSITIVE_INFINITY]],
    ["..80ms", [Number.NEGATIVE_INFINITY, 0.08]],
    ["40..80ms", [0.04, 0.08]],
    ["500ms..2s", [0.5, 2]],
    ["1.5", [1.5, 1.5]],
    ["9..3", [3, 9]],
  ])("%s", (text, range) => expect(secondsBetween(text)).toEqual(range));
  it.each(["", "..", "ms", "5m", "1..2..3", "1s2s"])("refuses %j", (text) => expect(secondsBetween(text)).toBeNull());
});

test("keys that ask about steps alone are named once", () => {
  expect(keysOfSteps(parseFilter("job:a step:1 step:2 kv:90.. reason:x ttft:1.."))).toEqual(["step:", "kv:"]);
});

test.each([
  ["ttft:30..", ["ttft:30.. is in seconds"]],
  ["-waited:..0.5 e2e:3:20", ["waited:..0.5 is in seconds"]],
  ["ttft:..80ms tpot:40..80ms e2e:1s step:3", []],
])("the unit that a bare number has in %s is told", (text, told) => {
  expect(unitsOf(parseFilter(text))).toEqual(told);
});

describe("toggleTerm", () => {
  it("adds and takes out", () => {
    expect(toggleTerm("", "job", "a")).toBe("job:a");
    expect(toggleTerm("reason:kv job:a", "job", "a")).toBe("reason:kv");
    expect(toggleTerm("job:a", "req", "two words")).toBe('job:a req:"two words"');
    expect(toggleTerm('job:a req:"two words"', "req", "two words")).toBe("job:a");
  });
});
