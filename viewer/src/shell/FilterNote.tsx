/** What of the filter was not understood, the unit of a number without one, or what says nothing in the view that is open. */

import { keysOfSteps, unitsOf } from "../state/filter";
import type { Tab } from "../state/hash";
import { showTab } from "../state/moves";
import { filter, filterText, selection, tab } from "../state/store";
import { forgetPlaces } from "./keptScroll";

/** Views whose figures are of all requests and steps: a filter would have them say something else than their own heads. */
const UNFILTERED: ReadonlySet<Tab> = new Set<Tab>(["overview", "statistics", "compare"]);

/** A line of its own below the tabs: it covers nothing, and comes only when the typing rests. */
export function FilterNote() {
  const { problems, terms } = filter.value;
  const idle = tab.value === "requests" ? keysOfSteps(filter.value) : [];
  const notes = [
    ...problems,
    ...unitsOf(filter.value),
    ...(idle.length > 0 ? [`Not applied here: ${idle.join(", ")} asks about steps`] : []),
  ];
  const show = (where: Tab) => () => {
    forgetPlaces();
    showTab(where);
  };
  return (
    <p id="filter-note" class={`filter-note${problems.length > 0 ? " problem" : ""}`} role="status">
      {notes.join(". ")}
      {terms.length > 0 && UNFILTERED.has(tab.value) && (
        <>
          {notes.length > 0 && ". "}
          The filter is not applied here: figures are of all requests of the {selection.value ? "selection" : "run"}.{" "}
          <button type="button" onClick={show("requests")}>
            its requests
          </button>
          <button type="button" onClick={show("timeline")}>
            its steps
          </button>
          <button
            type="button"
            onClick={() => {
              filterText.value = "";
            }}
          >
            remove it
          </button>
        </>
      )}
    </p>
  );
}
