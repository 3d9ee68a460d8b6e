/** What a reader left out, and why: never silently. */

import { isAtStepLimit } from "../data";
import type { TraceStore } from "../data/model/trace";
import { count, plural } from "../format";
import { revision } from "../state/store";
import { cut, middle } from "../text";

function sentences(store: TraceStore): string[] {
  const { notes } = store;
  const found = [...notes.sentences];
  const say = (number: number, text: string) => {
    if (number > 0) found.push(text);
  };
  say(notes.badLines, `${plural(notes.badLines, "line")} could not be read`);
  for (const [event, number] of Object.entries(notes.unknownEvents))
    found.push(`${plural(number, "record")} of unknown kind ${cut(event, 60)}`);
  for (const [field, number] of Object.entries(notes.droppedFields))
    found.push(
      `${plural(number, "value")} of ${cut(field, 60)} had a wrong type and ${number === 1 ? "is" : "are"} treated as missing`,
    );
  say(notes.duplicateRecords, `${plural(notes.duplicateRecords, "record")} came twice: the first is taken`);
  say(notes.lateRecords, `${plural(notes.lateRecords, "record")} came after their step was over`);
  say(notes.rowsOutOfOrder, `${plural(notes.rowsOutOfOrder, "step")} out of order: shown in the order of the file`);
  say(
    notes.unmatchedRequestRecords,
    `${plural(notes.unmatchedRequestRecords, "request record")} of steps that are not there`,
  );
  say(notes.longTexts, `${plural(notes.longTexts, "very long text")} cut`);
  if (store.stage === "cancelled") found.push("loading was cancelled: the rest of the trace is missing");
  const { everyN, maxSteps } = store.start ?? {};
  if (everyN && everyN > 1) found.push(`only every ${count(everyN)}th step was recorded`);
  if (maxSteps && isAtStepLimit(store)) found.push(`recording stopped at its limit of ${count(maxSteps)} steps`);
  return found;
}

export function Notes({ store }: { store: TraceStore }) {
  revision.value;
  const found = sentences(store);
  if (found.length === 0) return null;
  return (
    <details class="notes">
      <summary>
        <span aria-hidden="true">▲</span>{" "}
        {found.length === 1 ? cut(found[0], 160) : `${found.length} notes on what was read`}
      </summary>
      <ul>
        {found.map((sentence) => (
          <li key={sentence}>{cut(sentence, 400)}</li>
        ))}
        {store.notes.firstBadLines.map(({ file, line, problem }) => (
          <li key={`${file} ${line}`} class="quiet">
            {middle(file, 60)}, line {count(line)}: {cut(problem, 200)}
          </li>
        ))}
      </ul>
    </details>
  );
}
