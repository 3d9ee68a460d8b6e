/** How far a load is, and how to stop it. */

import { bytes, count } from "../format";
import type { LoadState } from "../state/store";

const WHAT = { steps: "steps", requests: "request records" } as const;

function words({ progress, name, waiting }: LoadState): { sentence: string; share: number | null } {
  if (waiting) return { sentence: "the file holds no step yet: waiting for the first one", share: null };
  if (!progress) return { sentence: `opening ${name}`, share: null };
  const { bytesRead, file, records } = progress;
  const share = shareRead({ progress });
  const read = share === null ? bytes(bytesRead) : `${Math.floor(100 * share)} %`;
  return { sentence: `${file} file: ${read}, ${count(records)} ${WHAT[file]}`, share };
}

/** Of the file that is read now; null if its length is not known. */
export function shareRead({ progress }: Pick<LoadState, "progress">): number | null {
  return progress?.bytesTotal ? Math.min(progress.bytesRead / progress.bytesTotal, 1) : null;
}

/** In the header, while the trace is already drawn. */
export function LoadLine({ state }: { state: LoadState }) {
  const { sentence, share } = words(state);
  return (
    <span class="load-line" role="status">
      <progress max={1} {...(share === null ? {} : { value: share })} aria-label="Loading" />
      {sentence}
      <button type="button" onClick={() => state.cancel()}>
        Cancel
      </button>
    </span>
  );
}

/** On the landing page, before there is anything to draw. */
export function LoadCard({ state }: { state: LoadState }) {
  const { sentence, share } = words(state);
  return (
    <section class="card load-card" role="status" aria-label="Loading">
      <h2>{state.name}</h2>
      <progress max={1} {...(share === null ? {} : { value: share })} aria-label="Loading" />
      <p>{sentence}</p>
      <button type="button" onClick={() => state.cancel()}>
        Cancel
      </button>
    </section>
  );
}
