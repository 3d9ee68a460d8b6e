import { describe, expect, it } from "vitest";
import { cssVariables, FAMILIES, PILLS, SURFACES, type Tone } from "./palette";

/** Contrast of WCAG 2: 1 (none) to 21 (black on white). */
function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const meanings = [...Object.entries(FAMILIES), ...Object.entries(PILLS)];

describe("palette", () => {
  it.each(meanings)("%s is legible in both themes", (_, meaning) => {
    for (const tone of [meaning.light, meaning.dark] satisfies Tone[])
      expect(contrast(tone.fill, tone.ink)).toBeGreaterThanOrEqual(4.5);
  });

  it.each(["light", "dark"] as const)("text on the %s page is legible", (theme) => {
    const { page, raised, focus, text, quiet, accent, blocked, prefill } = SURFACES[theme];
    for (const ground of [page, raised, focus]) {
      for (const ink of [text, quiet, accent]) expect(contrast(ground, ink)).toBeGreaterThanOrEqual(4.5);
    }
    expect(contrast(blocked.fill, blocked.ink)).toBeGreaterThanOrEqual(4.5);
    expect(contrast(page, prefill)).toBeGreaterThanOrEqual(3);
  });

  it("doubles every colour with a letter of its own", () => {
    for (const group of [FAMILIES, PILLS]) {
      const letters = Object.values(group).map((meaning) => meaning.letter);
      expect(new Set(letters).size).toBe(letters.length);
    }
  });

  it("gives the style sheet the same colours", () => {
    const variables = cssVariables("dark");
    expect(variables["--family-memory"]).toBe(FAMILIES.memory.dark.fill);
    expect(variables["--blocked-ink"]).toBe(SURFACES.dark.blocked.ink);
  });
});
