import { describe, expect, it } from "vitest";
import { cut, middle, plain } from "./text";

describe("foreign text", () => {
  it("loses what would steer the line", () => {
    expect(plain("a\u202eb\u0000c\nd\u200fe")).toBe("a\ufffdb\ufffdc\ufffdd\ufffde");
    expect(plain("<b>ü 中 👍</b>")).toBe("<b>ü 中 👍</b>");
  });

  it("keeps both ends of an id", () => {
    expect(middle("short")).toBe("short");
    const long = middle(`begin${"x".repeat(1_000_000)}end`, 21);
    expect(long).toHaveLength(21);
    expect(long.startsWith("begin") && long.endsWith("end")).toBe(true);
  });

  it("says how much it cut", () => {
    expect(cut("x".repeat(1_000_000), 10)).toBe("xxxxxxxxxx… (cut: 1,000,000 characters)");
  });
});
