/** What of the filter was not understood, the unit of a number without one, or what says nothing in the view that is open. */

import { keysOfSteps, unitsOf } from "../state/filter";
import { filter, tab } from "../state/store";

/** A line of its own below the tabs: it covers nothing, and comes only when the typing rests. */
export function FilterNote() {
  const { problems } = filter.value;
  const idle = tab.value === "requests" ? keysOfSteps(filter.value) : [];
  const notes = [
    ...problems,
    ...unitsOf(filter.value),
    ...(idle.length > 0 ? [`Not applied here: ${idle.join(", ")} asks about steps`] : []),
  ];
  return (
    <p id="filter-note" class={`filter-note${problems.length > 0 ? " problem" : ""}`} role="status">
      {notes.join(". ")}
    </p>
  );
}
