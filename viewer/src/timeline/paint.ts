/** When to paint: once per frame at most, whenever anything changes that the canvas shows. */

import { effect } from "@preact/signals";
import { rowOfStep } from "../data";
import { annotationsOf } from "../export/notebook";
import { matches, revision, selection, themeName, trace } from "../state/store";
import * as frame from "./frame";
import type { Painter, Scene } from "./painter";

/** Answers how to stop. */
export function startPainting(canvas: HTMLCanvasElement, painter: Painter): () => void {
  let request = 0;
  let scene: Scene | null = null;
  const paint = () => {
    request = 0;
    if (scene && painter.paint(canvas, scene)) request = requestAnimationFrame(paint);
  };
  const stop = effect(() => {
    revision.value;
    const store = trace.value;
    if (!store || frame.height.value === 0) return;
    const { requests } = matches.value;
    scene = {
      store,
      axis: frame.axis.value,
      geometry: frame.geometry.value,
      columns: frame.columns.value,
      width: frame.width.value,
      theme: themeName.value,
      selection: selection.value,
      focusPlace: frame.focusPlace.value,
      noted: annotationsOf(store).map(({ step }) => rowOfStep(store, step)),
      meant: requests ? (which) => requests[which] === 1 : null,
    };
    if (request === 0) request = requestAnimationFrame(paint);
  });
  return () => {
    stop();
    cancelAnimationFrame(request);
  };
}
