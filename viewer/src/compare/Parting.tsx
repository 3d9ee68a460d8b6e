import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { focus, showTab } from "../state/moves";

interface PartingProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

/** The first step at which the two runs are not the same any more. */
export function Parting({ a, b, found }: PartingProps) {
  const { parting } = found;
  if (!parting) {
    const same = a.rows === b.rows ? "every step is the same" : "they are the same as far as both go";
    return (
      <p class="parting" role="status">
        <strong>They never part</strong>: {same} ({count(Math.min(a.rows, b.rows))} steps).
      </p>
    );
  }
  const step = a.steps.number[parting.rowA];
  return (
    <div class="parting" role="status">
      <p>
        <strong>
          They part at step <span class="number">{count(step)}</span>
        </strong>
        {parting.rowA === 0 ? " (the first)" : `, after ${count(parting.rowA)} equal ones`}: {parting.what}.
      </p>
      <p class="quiet parting-detail">{parting.detail}</p>
      <button
        type="button"
        onClick={() => {
          focus(parting.rowA);
          showTab("timeline");
        }}
      >
        look at it in A
      </button>
    </div>
  );
}
