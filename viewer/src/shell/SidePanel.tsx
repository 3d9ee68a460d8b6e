/** What is selected: the step's decision with its numbers, and the request that was clicked. */

import { useRef } from "preact/hooks";
import type { TraceStore } from "../data/model/trace";
import { AnnotationEditor } from "../export/AnnotationEditor";
import { count } from "../format";
import { RequestPanel } from "../requests/RequestPanel";
import { focusRequest, focusRow, revision } from "../state/store";
import { useOpener } from "./opener";
import { RequestAtStep } from "./RequestAtStep";
import { StepPanel } from "./StepPanel";

export function SidePanel({ store }: { store: TraceStore }) {
  revision.value;
  const row = focusRow.value;
  const request = focusRequest.value;
  const panel = useRef<HTMLElement>(null);
  const onKeyDown = useOpener(panel);
  if (row < 0 && request < 0) return null;
  const close = () => {
    focusRow.value = -1;
    focusRequest.value = -1;
  };
  return (
    <aside class="side" ref={panel} tabIndex={-1} onKeyDown={onKeyDown} aria-label="What is selected">
      <div class="side-head">
        <span>
          {[request >= 0 && "request", row >= 0 && `step ${count(store.steps.number[row])}`].filter(Boolean).join(", ")}
        </span>
        <button type="button" class="icon close" aria-label="Close the panel" title="Close (Esc)" onClick={close}>
          ✕
        </button>
      </div>
      {request >= 0 && (
        <section aria-label="Request">
          <h2>Request</h2>
          <RequestPanel store={store} request={request} />
          {row >= 0 && <RequestAtStep store={store} row={row} request={request} />}
        </section>
      )}
      {row >= 0 && <StepPanel store={store} row={row} />}
      {row >= 0 && (
        <section aria-label="Note">
          <AnnotationEditor key={row} store={store} row={row} />
        </section>
      )}
    </aside>
  );
}
