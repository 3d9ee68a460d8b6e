import type { Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { focusRange } from "../state/moves";

interface StepLinkProps {
  store: TraceStore;
  first: Row;
  last: Row;
  /** Not all steps from the first to the last are meant. */
  and?: boolean;
}

/** `120–340`, or `120 and 340`: selects these steps, shows them and looks at the first. */
export function StepLink({ store, first, last, and = false }: StepLinkProps) {
  const { number } = store.steps;
  const text =
    last <= first ? count(number[first]) : `${count(number[first])}${and ? " and " : "–"}${count(number[last])}`;
  return (
    <button
      type="button"
      class="plain number"
      title={last > first ? "Select these steps and look at the first" : "Look at this step"}
      onClick={() => focusRange(first, last)}
    >
      {text}
    </button>
  );
}
