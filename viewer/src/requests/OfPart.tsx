import type { Range } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { clearSelection } from "../state/moves";
import { filter, scope, selection, wholeRange } from "../state/store";

/** What is selected, or the last seconds that are requested; null: the whole run. */
export function partOf(store: TraceStore): Range | null {
  const whole = wholeRange(store);
  const range = scope.value ?? whole;
  return range && (range.first > 0 || range.last !== whole?.last) ? range : null;
}

/** Says that only those are shown that were there in the selection, or in the last seconds. */
export function OfPart({ part }: { part: boolean }) {
  if (!part) return null;
  const held = filter.value.terms.some(({ key }) => key === "reason");
  if (!selection.value) return <span class="quiet">(of the last seconds)</span>;
  return (
    <span class="quiet">
      ({held ? "held back" : "there"} in the selection){" "}
      <button type="button" onClick={clearSelection}>
        whole run
      </button>
    </span>
  );
}
