import { describe, expect, it } from "vitest";
import { EMPTY, type HashState } from "./hash";
import { isNewPlace } from "./history";

function place(state: Partial<HashState>, key = "a/1") {
  return { key, state: { ...EMPTY, ...state } };
}

describe("isNewPlace", () => {
  it.each<[string, Partial<HashState>, Partial<HashState>]>([
    ["another tab", {}, { tab: "requests" }],
    ["a step that is far", { step: 10 }, { step: 40 }],
    ["the first step", {}, { step: 3 }],
    ["another request", { step: 1, req: "a" }, { step: 1, req: "b" }],
    ["a selection", {}, { selection: [1, 9] }],
    ["another selection", { selection: [1, 9] }, { selection: [20, 30] }],
    ["no selection", { selection: [1, 9] }, {}],
    ["a filter that begins", {}, { filter: "j" }],
    ["another trace", { trace: "/a" }, { trace: "/b" }],
  ])("%s is one", (_, before, now) => expect(isNewPlace(place(before), place(now))).toBe(true));

  it.each<[string, Partial<HashState>, Partial<HashState>]>([
    ["another zoom", { view: [0, 10] }, { view: [3, 7.5] }],
    ["the step beside", { step: 10 }, { step: 11 }],
    ["a selection that grows, and a screen at that", { selection: [1, 9], step: 9 }, { selection: [1, 40], step: 40 }],
    ["one more letter of a filter", { filter: "j" }, { filter: "jo" }],
    ["another axis", {}, { extra: { axis: "steps" } }],
  ])("%s is none", (_, before, now) => expect(isNewPlace(place(before), place(now))).toBe(false));

  it("is one when a file without a path is opened", () => {
    expect(isNewPlace(place({}, ""), place({}, "a/1"))).toBe(true);
  });
});
