import { Swatch } from "../charts/Swatch";
import { shortId } from "../data/labels";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { meaningOf } from "../data/wording";
import { count, milliseconds, percent, plural, signed } from "../format";
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
      <Uneven {...found.finished} />
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

/** The two did not finish the same requests: what is compared then. */
function Uneven({ a, b, both }: Comparison["finished"]) {
  if (a === both && b === both) return null;
  return (
    <p class="uneven">
      The two did not finish the same requests: A {count(a)}, B {count(b)}, of which {count(both)} are the same.{" "}
      {both > 0
        ? "Queue time, time to first token, per output token and end to end are those of these; the other figures are of each run as it is, and none of them is called better."
        : "So no figure is called better or worse."}
    </p>
  );
}

type Row = Comparison["buckets"][number];

/** The recorded reasons by the time lost to them; below them what a trace without reasons would suggest, by steps. */
function Limits({ a, b, found }: DifferencesProps) {
  const recorded = found.buckets.filter((row) => row.recorded);
  const guessed = found.buckets.filter((row) => !row.recorded);
  const most = Math.max(...recorded.flatMap((row) => [row.lostA, row.lostB]), 1e-9);
  return (
    <section aria-labelledby="limits-title">
      <h3 id="limits-title">What held requests back</h3>
      {recorded.length > 0 && (
        <LimitsTable
          caption="Recorded reasons, by the time that requests lost to them"
          rows={recorded}
          values={(row) => [row.lostA, row.lostB]}
          most={[most, most]}
          text={milliseconds}
          small={(row) => [plural(row.a, "step"), plural(row.b, "step")]}
        />
      )}
      <LimitsTable
        caption="Reconstructed buckets, in steps"
        rows={guessed}
        values={(row) => [row.a, row.b]}
        most={[a.rows, b.rows]}
        text={count}
        small={(row) => [percent(row.a / a.rows), percent(row.b / b.rows)]}
      />
    </section>
  );
}

const SIDES = ["A", "B"] as const;

interface LimitsTableProps {
  caption: string;
  rows: readonly Row[];
  /** Of A and of B; so are the others. */
  values(row: Row): [number, number];
  most: [number, number];
  text(value: number): string;
  small(row: Row): [string, string];
}

function LimitsTable({ caption, rows, values, most, text, small }: LimitsTableProps) {
  return (
    <table class="numbers limits">
      <caption>{caption}</caption>
      <thead>
        <tr>
          <th scope="col">reason</th>
          <th scope="col">
            <span class="hidden-text">shares</span>
          </th>
          {[...SIDES, "B − A"].map((name) => (
            <th scope="col" class="number" key={name}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const pair = values(row);
          return (
            <tr key={row.name}>
              <th scope="row" title={meaningOf(row.name)}>
                <Swatch family={row.family} /> {shortId(row.name, 40)}
              </th>
              <td aria-hidden="true" class="pair">
                {SIDES.map((side, at) => (
                  <span
                    key={side}
                    style={{ width: `${(100 * pair[at]) / most[at]}%`, background: `var(--family-${row.family})` }}
                  />
                ))}
              </td>
              {SIDES.map((side, at) => (
                <td class="number" key={side}>
                  {text(pair[at])} <small>{small(row)[at]}</small>
                </td>
              ))}
              <td class="number">{signed(pair[1] - pair[0], text)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
