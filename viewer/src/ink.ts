/** Drawing on canvases: sharp on every screen, with the page's colours, patterns and one fixed-width font. */

import { hatched } from "./charts/patterns";
import type { ReasonFamily } from "./data/model/reasons";
import { FAMILIES, SURFACES, type Surface, type ThemeName, type Tone } from "./palette";
import { middle } from "./text";

export const FONT_SIZE = 11;
export const FONT = `${FONT_SIZE}px ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace`;
const BOLD = `700 ${FONT}`;

/** A canvas ready to be drawn on in CSS pixels. */
export interface Ink {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  theme: ThemeName;
  surface: Surface;
  /** Width of one character of FONT. */
  char: number;
}

let charWidth = 0;

/** Size a canvas for the screen and clear it. Null if the browser gives no context. */
export function takeInk(canvas: HTMLCanvasElement, width: number, height: number, theme: ThemeName): Ink | null {
  const context = canvas.getContext("2d", { alpha: false });
  if (!context) return null;
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  context.textBaseline = "middle";
  if (charWidth === 0) charWidth = context.measureText("0".repeat(100)).width / 100 || 6.6;
  const surface = SURFACES[theme];
  context.fillStyle = surface.page;
  context.fillRect(0, 0, width, height);
  return { context, width, height, theme, surface, char: charWidth };
}

/** What of a text fits into a width, with an ellipsis where it is cut. Hostile text: marks that turn it round are out. */
export function fitText(text: string, width: number, char: number): string {
  const room = Math.floor(width / char);
  if (text.length <= room) return text;
  return room <= 1 ? "" : `${text.slice(0, room - 1)}…`;
}

/** A job and its turn, in that width: closer together, else both ends. */
export function fitEnds(text: string, width: number, char: number): string {
  const room = Math.floor(width / char);
  if (text.length <= room || room < 3) return fitText(text, width, char);
  return middle(text.replace(", ", "·").replaceAll(" ", ""), room);
}

export function write(ink: Ink, text: string, x: number, y: number, colour: string, bold = false): void {
  const { context } = ink;
  if (bold) context.font = BOLD;
  context.fillStyle = colour;
  context.fillText(text, x, y);
  if (bold) context.font = FONT;
}

export function writeRight(ink: Ink, text: string, right: number, y: number, colour: string): void {
  write(ink, text, right - text.length * ink.char, y, colour);
}

export function rule(ink: Ink, x: number, y: number, width: number, height: number, colour = ink.surface.rule): void {
  ink.context.fillStyle = colour;
  ink.context.fillRect(x, y, width, height);
}

export function tone(family: ReasonFamily, theme: ThemeName): Tone {
  return FAMILIES[family][theme];
}

const patterns = new Map<string, CanvasPattern | string>();

/** Fill of a family with its hatch, for places where no letter fits. */
export function familyFill(ink: Ink, family: ReasonFamily): CanvasPattern | string {
  const name = `${ink.theme} ${family}`;
  let found = patterns.get(name);
  if (found === undefined) {
    const { hatch, [ink.theme]: meant } = FAMILIES[family];
    found = hatched(meant, hatch);
    patterns.set(name, found);
  }
  return found;
}
