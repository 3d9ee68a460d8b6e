/** Everything that the trace says of a request at a step, unknown fields included. */

import { useEffect, useState } from "preact/hooks";
import { details, placeInQueue } from "../data";
import type { RequestIndex, Row } from "../data/model/columns";
import type { Detail } from "../data/model/moment";
import type { TraceStore } from "../data/model/trace";
import { count, ordinal } from "../format";
import { revision } from "../state/store";
import { cut } from "../text";

interface Props {
  store: TraceStore;
  row: Row;
  request: RequestIndex;
}

export function RequestAtStep({ store, row, request }: Props) {
  const changed = revision.value;
  const [found, setFound] = useState<Detail[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let current = true;
    setProblem("");
    details(store, row, request).then(
      (all) => current && setFound(all),
      (error: unknown) => current && setProblem(String(error)),
    );
    return () => {
      current = false;
    };
  }, [store, row, request, changed]);
  return (
    <>
      <h3>At step {count(store.steps.number[row])}</h3>
      <Place {...{ store, row, request }} />
      {problem && <p class="quiet">It could not be read again: {cut(problem, 200)}</p>}
      {!found && !problem && <p class="quiet">reading …</p>}
      {found && <Groups details={found} />}
    </>
  );
}

function Place({ store, row, request }: Props) {
  const found = placeInQueue(store, row, request);
  if (!found) return null;
  return (
    <p>
      It stands <strong>{ordinal(found.place)}</strong> of {count(found.of)} in the waiting queue.
    </p>
  );
}

/** One block per record that it stands in. */
function Groups({ details: all }: { details: readonly Detail[] }) {
  const records = [...new Set(all.map((detail) => detail.from))];
  return (
    <>
      {records.map((from) => (
        <div key={from}>
          <h4>{from}</h4>
          <dl class="facts details">
            {all
              .filter((detail) => detail.from === from)
              .map((detail) => (
                <div key={detail.name}>
                  <dt>{cut(detail.name, 80)}</dt>
                  <dd class="number">{cut(detail.value, 600)}</dd>
                </div>
              ))}
          </dl>
        </div>
      ))}
      {all.length === 0 && <p class="quiet">The trace says nothing of it at this step.</p>}
    </>
  );
}
