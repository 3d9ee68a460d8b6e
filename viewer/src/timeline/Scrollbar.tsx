/** A scrollbar by places: browsers end at some 33 million pixels, traces do not. */

import { useRef } from "preact/hooks";
import * as frame from "./frame";

const LEAST_THUMB = 28;

export function Scrollbar() {
  const track = useRef<HTMLDivElement>(null);
  const { top, rowHeight, height, count } = frame.geometry.value;
  const shown = Math.min(height / rowHeight, count);
  if (count === 0 || shown >= count) return <div class="scrollbar" aria-hidden="true" />;
  const thumb = Math.max(LEAST_THUMB, (height * shown) / count);
  const share = Math.min(Math.max(top / (count - shown), 0), 1);
  const drag = (event: PointerEvent) => {
    const element = track.current;
    if (!element) return;
    event.preventDefault();
    element.setPointerCapture(event.pointerId);
    const box = element.getBoundingClientRect();
    const grip = event.clientY - box.top - share * (height - thumb);
    const onThumb = grip >= 0 && grip <= thumb;
    const offset = onThumb ? grip : thumb / 2;
    const done = new AbortController();
    const move = (moved: PointerEvent) => {
      const at = (moved.clientY - box.top - offset) / Math.max(height - thumb, 1);
      const first = Math.min(Math.max(at, 0), 1) * (count - shown);
      frame.showPlaces(first, first + shown);
    };
    if (!onThumb) move(event);
    element.addEventListener("pointermove", move, { signal: done.signal });
    for (const end of ["pointerup", "pointercancel"] as const)
      element.addEventListener(end, () => done.abort(), { signal: done.signal });
  };
  return (
    <div class="scrollbar" ref={track} aria-hidden="true" data-picture="none" onPointerDown={drag}>
      <div class="thumb" style={{ height: `${thumb}px`, transform: `translateY(${share * (height - thumb)}px)` }} />
    </div>
  );
}
