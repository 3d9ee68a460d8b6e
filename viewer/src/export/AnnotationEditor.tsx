import { useState } from "preact/hooks";
import type { Row } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { count } from "../format";
import { addAnnotation, notebookOf, removeAnnotation, saveToFile } from "./notebook";
import "./export.css";

interface AnnotationEditorProps {
  store: TraceStore;
  row: Row;
}

/** Notes on a step: those there are, and room for another. */
export function AnnotationEditor({ store, row }: AnnotationEditorProps) {
  const [text, setText] = useState("");
  const { list, saved, served, problem } = notebookOf(store).value;
  const step = store.steps.number[row];
  const here = list.filter((one) => one.step === step);
  const submit = (event: Event) => {
    event.preventDefault();
    addAnnotation(store, step, text);
    setText("");
  };
  return (
    <section class="annotations" aria-label={`Annotations of step ${count(step)}`}>
      <h3>Annotations</h3>
      <ul>
        {here.map((one) => (
          <li key={one.text}>
            <span>{one.text}</span>
            <button
              type="button"
              class="plain"
              aria-label={`Remove the annotation ${one.text.slice(0, 60)}`}
              onClick={() => removeAnnotation(store, one)}
            >
              remove
            </button>
          </li>
        ))}
      </ul>
      <form onSubmit={submit}>
        <textarea
          rows={2}
          maxLength={4000}
          aria-label={`Note on step ${count(step)}`}
          placeholder="A note on this step"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
          }}
        />
        <button type="submit" disabled={text.trim() === ""}>
          add
        </button>
      </form>
      {problem && <p role="alert">{problem}</p>}
      {!saved && !served && (
        <p class="quiet">
          Not in a file yet.{" "}
          <button type="button" class="plain" onClick={() => saveToFile(store)}>
            save the side file
          </button>
        </p>
      )}
    </section>
  );
}
