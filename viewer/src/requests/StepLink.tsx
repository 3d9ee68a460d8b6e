import type { Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { focus } from "../state/moves";

/** `120–340`, leading to the first of the steps. */
export function StepLink({ store, first, last }: { store: TraceStore; first: Row; last: Row }) {
  const { number } = store.steps;
  const text = last <= first ? count(number[first]) : `${count(number[first])}–${count(number[last])}`;
  return (
    <button type="button" class="plain number" title="Look at the first of these steps" onClick={() => focus(first)}>
      {text}
    </button>
  );
}
