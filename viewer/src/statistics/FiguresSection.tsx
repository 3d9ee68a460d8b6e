import type { Statistics } from "../data/model/statistics";
import type { TraceStore } from "../data/model/trace";
import { CopyButton } from "../export/CopyButton";
import { bounds } from "../state/bounds";
import { type Figure, figures, figureText, LATENCY_FIGURES, latencies, notes, type Part, partText } from "./figures";

interface FiguresProps {
  store: TraceStore;
  found: Statistics;
  /** `steps 0..5423 of swe-a100`: the first line of what is copied. */
  scope: string;
  onFilter(text: string): void;
}

/** The numbers to paste into an experiment's notes. */
export function FiguresSection({ store, found, scope, onFilter }: FiguresProps) {
  const all = figures(store, found, bounds.value);
  const rows = latencies(found);
  const text = () =>
    [
      scope,
      ...all.map(figureText),
      ...rows.map(
        ({ name, values }) => `${name}: ${LATENCY_FIGURES.map((figure, at) => `${figure} ${values[at]}`).join(", ")}`,
      ),
    ].join("\n");
  return (
    <section aria-labelledby="figures-title">
      <h3 id="figures-title">
        Figures <CopyButton text={text} label="Copy all figures" words="copy all" />
      </h3>
      {notes(found).map((note) => (
        <p class="quiet" key={note}>
          {note}
        </p>
      ))}
      <div class="columns">
        <dl class="figures">
          {all.map((figure) => (
            <div key={figure.label}>
              <dt title={figure.meaning}>{figure.label}</dt>
              <dd>
                <Parts figure={figure} onFilter={onFilter} />
                <CopyButton text={() => figureText(figure)} label={`Copy ${figure.label}`} />
              </dd>
            </div>
          ))}
        </dl>
        {rows.length > 0 ? (
          <table class="numbers latency" aria-label="Latencies of the requests">
            <thead>
              <tr>
                <th scope="col">latency</th>
                {LATENCY_FIGURES.map((name) => (
                  <th scope="col" class="number" key={name}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ name, meaning, values }) => (
                <tr key={name}>
                  <th scope="row" title={meaning}>
                    {name} <small>{meaning}</small>
                  </th>
                  {values.map((value, index) => (
                    <td class="number" key={index}>
                      {value}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <p class="quiet">No request of these steps tells when it came: no latencies.</p>
        )}
      </div>
    </section>
  );
}

function Parts({ figure, onFilter }: { figure: Figure; onFilter(text: string): void }) {
  return (
    <span class="parts number">
      {figure.parts.map((part) => (
        <Piece key={part.name ?? ""} part={part} onFilter={onFilter} />
      ))}
    </span>
  );
}

function Piece({ part, onFilter }: { part: Part; onFilter(text: string): void }) {
  const { filter } = part;
  if (filter === undefined) return <span>{partText(part)}</span>;
  return (
    <button type="button" class="plain" title={`Show the steps: ${filter}`} onClick={() => onFilter(filter)}>
      {partText(part)}
    </button>
  );
}
