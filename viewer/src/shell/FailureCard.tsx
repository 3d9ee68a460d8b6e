/** What went wrong, and what to do next. */

import { failure } from "../state/store";
import { cut } from "../text";

export function FailureCard() {
  const found = failure.value;
  if (!found) return null;
  return (
    <section class="card failure" role="alert">
      <h2>{cut(found.title, 200)}</h2>
      <p>{cut(found.detail, 600)}</p>
      <p>{cut(found.advice, 400)}</p>
      <button
        type="button"
        onClick={() => {
          failure.value = null;
        }}
      >
        Dismiss
      </button>
    </section>
  );
}
