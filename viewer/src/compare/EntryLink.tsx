import type { Ref } from "preact";
import { requestOf } from "../data";
import { shortId } from "../data/labels";
import type { TraceStore } from "../data/model/trace";
import { focus, showTab } from "../state/moves";
import { filterText } from "../state/store";
import type { Entry, Group } from "./faster";

interface EntryLinkProps {
  a: TraceStore;
  group: Group;
  entry: Entry;
  /** Of a list that has one tab stop. */
  tabIndex?: number;
  buttonRef?: Ref<HTMLButtonElement>;
  onFocus?(): void;
}

/** From Compare to the lane of a job in A, or to one of its requests with its waiting. */
export function EntryLink({ a, group, entry, buttonRef, ...more }: EntryLinkProps) {
  const open = () => {
    const request = requestOf(a, entry.id);
    if (group === "jobs" && request < 0) filterText.value = `job:"${entry.id.replaceAll('"', "").slice(0, 200)}"`;
    else focus(Math.max(a.requests.firstRow[request], 0), request);
    showTab("requests");
  };
  return (
    <button
      type="button"
      class="plain id"
      ref={buttonRef ?? null}
      title={entry.a ? `${shortId(entry.id, 200)}: look at it in A, in the Requests tab` : "Not in A"}
      aria-disabled={!entry.a}
      onClick={() => entry.a && open()}
      {...more}
    >
      {shortId(entry.id, 32)}
    </button>
  );
}
