import { describe, expect, it } from "vitest";
import { actionOf, KEY_HELP } from "./keyboard";

const key = (name: string, more = {}) => ({ key: name, ctrlKey: false, metaKey: false, altKey: false, ...more });
const page = { typing: false, ownArrows: false };

describe("keyboard", () => {
  it("knows Perfetto's keys", () => {
    expect(["w", "a", "s", "d", ".", ",", "f", "/", "?"].map((name) => actionOf(key(name), page))).toEqual([
      "zoom-in",
      "earlier",
      "zoom-out",
      "later",
      "next-step",
      "previous-step",
      "fit",
      "filter",
      "help",
    ]);
  });

  it("tells n from N", () => {
    expect(actionOf(key("n"), page)).toBe("next-same-reason");
    expect(actionOf(key("N"), page)).toBe("previous-same-reason");
  });

  it("extends the selection with Shift", () => {
    const moved = ["ArrowDown", "ArrowUp", "PageDown", "PageUp"].map((name) =>
      actionOf(key(name, { shiftKey: true }), page),
    );
    expect(moved).toEqual(["extend-later", "extend-earlier", "extend-page-later", "extend-page-earlier"]);
    expect(actionOf(key("N", { shiftKey: true }), page)).toBe("previous-same-reason");
    expect(actionOf(key("ArrowDown", { shiftKey: true }), { typing: false, ownArrows: true })).toBeNull();
  });

  it("leaves typing alone, but for Escape", () => {
    expect(actionOf(key("w"), { typing: true, ownArrows: false })).toBeNull();
    expect(actionOf(key("Escape"), { typing: true, ownArrows: false })).toBe("back");
  });

  it("leaves the browser's own keys and a list's arrows alone", () => {
    expect(actionOf(key("f", { ctrlKey: true }), page)).toBeNull();
    expect(actionOf(key("ArrowDown"), { typing: false, ownArrows: true })).toBeNull();
    expect(actionOf(key("n"), { typing: false, ownArrows: true })).toBe("next-same-reason");
  });

  it("explains keys that it knows", () => {
    const names: Record<string, string> = {
      PgUp: "PageUp",
      PgDn: "PageDown",
      Esc: "Escape",
      "↓": "ArrowDown",
      "↑": "ArrowUp",
    };
    for (const { keys } of KEY_HELP)
      for (const shown of keys) {
        const name = shown.replace("Shift+", "");
        const pressed = key(names[name] ?? name, { shiftKey: name !== shown });
        expect(actionOf(pressed, page)).not.toBeNull();
      }
  });
});
