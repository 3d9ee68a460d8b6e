/** Requests in words, and the way to them. */

import { jobAndTurn, shortId } from "../data/labels";
import type { Range } from "../data/model/columns";
import type { Outcomes } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { forgetPlaces } from "../shell/keptScroll";
import { showTab } from "../state/moves";
import { filterText, focusRequest, selection } from "../state/store";

/** `agent_0087, turn 4`. */
export function requestWords(store: TraceStore, request: number): string {
  const job = store.requests.job[request];
  const { turn } = jobAndTurn(store.requests.ids[request], job < 0 ? null : store.jobs.ids[job]);
  if (job < 0 || turn === null) return shortId(store.requests.ids[request], 40);
  return `${shortId(store.jobs.ids[job], 30)}, turn ${turn.replace(/^t/, "")}`;
}

/** The requests that did not get what they requested, and the filter that means them. */
export const cutShort = ({ cancelled, refused }: Pick<Outcomes, "cancelled" | "refused">): number =>
  cancelled + refused;
export const ERRORS = "status:aborted status:failed status:refused";

export function showRequests(text: string, range?: Range): void {
  if (range) selection.value = range;
  forgetPlaces();
  filterText.value = text;
  focusRequest.value = -1;
  showTab("requests");
}
