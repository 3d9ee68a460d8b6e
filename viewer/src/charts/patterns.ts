/** Hatched fills for a canvas, so that areas of different meaning differ without colour. */

import type { Hatch } from "../palette";

const SIZE = 8;

/** A tile of `color` with the hatch in `ink`; `solid` is the colour itself. Made in device pixels. */
export function hatched(color: string, ink: string, hatch: Hatch): CanvasPattern | string {
  if (hatch === "solid") return color;
  const tile = document.createElement("canvas");
  tile.width = SIZE;
  tile.height = SIZE;
  const pen = tile.getContext("2d");
  if (!pen) return color;
  pen.fillStyle = color;
  pen.fillRect(0, 0, SIZE, SIZE);
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.45;
  pen.beginPath();
  for (const [fromX, fromY, toX, toY] of STROKES[hatch]) {
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY);
  }
  pen.stroke();
  return pen.createPattern(tile, "repeat") ?? color;
}

type Stroke = [number, number, number, number];

const RISING: Stroke[] = [
  [-1, SIZE + 1, SIZE + 1, -1],
  [-1, 1, 1, -1],
  [SIZE - 1, SIZE + 1, SIZE + 1, SIZE - 1],
];
const FALLING: Stroke[] = RISING.map(([fromX, fromY, toX, toY]) => [SIZE - fromX, fromY, SIZE - toX, toY]);
const STROKES: Record<Exclude<Hatch, "solid">, Stroke[]> = {
  rising: RISING,
  falling: FALLING,
  vertical: [[SIZE / 2, 0, SIZE / 2, SIZE]],
  horizontal: [[0, SIZE / 2, SIZE, SIZE / 2]],
  dots: [[SIZE / 2 - 1, SIZE / 2, SIZE / 2 + 1, SIZE / 2]],
  cross: [...RISING, ...FALLING],
};
