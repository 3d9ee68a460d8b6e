/** Hatched fills for a canvas, so that areas of different meaning differ without colour. */

import type { Hatch, Tone } from "../palette";

const SIZE = 8;

/** A tile of the tone's colour with the hatch in its ink; `solid` is the colour itself. */
export function hatched({ fill, ink }: Tone, hatch: Hatch): CanvasPattern | string {
  if (hatch === "solid") return fill;
  const tile = document.createElement("canvas");
  tile.width = SIZE;
  tile.height = SIZE;
  const pen = tile.getContext("2d");
  if (!pen) return fill;
  pen.fillStyle = fill;
  pen.fillRect(0, 0, SIZE, SIZE);
  Object.assign(pen, { globalAlpha: 0.4, strokeStyle: ink, fillStyle: ink, lineWidth: 1.2 });
  if (hatch === "dots") pen.fillRect(2, 2, 2, 2);
  else {
    pen.beginPath();
    for (const [fromX, fromY, toX, toY] of STROKES[hatch]) {
      pen.moveTo(fromX, fromY);
      pen.lineTo(toX, toY);
    }
    pen.stroke();
  }
  return pen.createPattern(tile, "repeat") ?? fill;
}

type Stroke = [number, number, number, number];

const RISING: Stroke[] = [
  [-1, SIZE + 1, SIZE + 1, -1],
  [-1, 1, 1, -1],
  [SIZE - 1, SIZE + 1, SIZE + 1, SIZE - 1],
];
const FALLING: Stroke[] = RISING.map(([fromX, fromY, toX, toY]) => [SIZE - fromX, fromY, SIZE - toX, toY]);
const STROKES: Record<Exclude<Hatch, "solid" | "dots">, Stroke[]> = {
  rising: RISING,
  falling: FALLING,
  vertical: [[SIZE / 2, 0, SIZE / 2, SIZE]],
  horizontal: [[0, SIZE / 2, SIZE, SIZE / 2]],
  cross: [...RISING, ...FALLING],
};
