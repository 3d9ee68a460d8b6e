import { Swatch } from "../charts/Swatch";
import { shortId } from "../data/labels";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count, percent, signed } from "../format";
import { figureRow } from "./figures";

interface DifferencesProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

/** Every figure of both runs, and what limited admission in each. */
export function DifferencesSection(props: DifferencesProps) {
  return (
    <div class="columns">
      <Figures {...props} />
      <Limits {...props} />
    </div>
  );
}

const SIGNS = { better: "▲ better", worse: "▼ worse", "": "" } as const;

function Figures({ found }: DifferencesProps) {
  return (
    <section aria-labelledby="figures-title">
      <h3 id="figures-title">Figures</h3>
      <table class="numbers">
        <thead>
          <tr>
            <th scope="col">figure</th>
            <th scope="col" class="number">
              A
            </th>
            <th scope="col" class="number">
              B
            </th>
            <th scope="col" class="number">
              B − A
            </th>
            <th scope="col">
              <span class="hidden-text">verdict</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {found.figures.map(figureRow).map((row) => (
            <tr key={row.label}>
              <th scope="row">{row.label}</th>
              <td class="number">{row.a}</td>
              <td class="number">{row.b}</td>
              <td class="number">
                {row.difference}
                {row.relative && <small> {row.relative}</small>}
              </td>
              <td class={`verdict ${row.verdict}`}>{SIGNS[row.verdict]}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Limits({ a, b, found }: DifferencesProps) {
  const shown = found.buckets.filter((row) => row.a > 0 || row.b > 0);
  return (
    <section aria-labelledby="limits-title">
      <h3 id="limits-title">Steps, by what limited admission</h3>
      <table class="numbers limits">
        <thead>
          <tr>
            <th scope="col">reason or bucket</th>
            <th scope="col">
              <span class="hidden-text">shares</span>
            </th>
            <th scope="col" class="number">
              A
            </th>
            <th scope="col" class="number">
              B
            </th>
            <th scope="col" class="number">
              B − A
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={`${row.name}${row.recorded}`}>
              <th scope="row">
                <Swatch family={row.family} /> {shortId(row.name, 40)}
                {row.recorded ? <small> recorded</small> : ""}
              </th>
              <td aria-hidden="true" class="pair">
                <span style={{ width: `${(100 * row.a) / a.rows}%`, background: `var(--family-${row.family})` }} />
                <span style={{ width: `${(100 * row.b) / b.rows}%`, background: `var(--family-${row.family})` }} />
              </td>
              <td class="number">
                {count(row.a)} <small>{percent(row.a / a.rows)}</small>
              </td>
              <td class="number">
                {count(row.b)} <small>{percent(row.b / b.rows)}</small>
              </td>
              <td class="number">{signed(row.b - row.a, count)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
