/** Long work in slices, so that the page stays at hand. */

const SLICE_MS = 12;
const CHECK_EVERY = 128;

/** Call `step` for first .. last; gives way to the page every few milliseconds. Rejects when the signal says so. */
export async function inSlices(
  first: number,
  last: number,
  step: (index: number) => void,
  signal?: AbortSignal,
): Promise<void> {
  let began = performance.now();
  for (let index = first; index <= last; index++) {
    step(index);
    if ((index - first) % CHECK_EVERY !== CHECK_EVERY - 1 || performance.now() - began < SLICE_MS) continue;
    await breathe();
    signal?.throwIfAborted();
    began = performance.now();
  }
}

/** For work that no loop of ours drives: what it returns gives way to the page if a slice is over. */
export function slicer(): () => Promise<void> | undefined {
  let began = performance.now();
  return () => {
    if (performance.now() - began < SLICE_MS) return undefined;
    return breathe().then(() => {
      began = performance.now();
    });
  };
}

export function breathe(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
