import { Swatch } from "../charts/Swatch";
import { shortId } from "../data/labels";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { meaningOf } from "../data/wording";
import { count, percent, plural } from "../format";
import { figureRow } from "./figures";
import { COUNTS, type PairText, pairText, timesText } from "./pair";
import { SideHead } from "./SideHead";

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

function Figures({ a, b, found }: DifferencesProps) {
  return (
    <section aria-labelledby="figures-title">
      <h3 id="figures-title">Figures</h3>
      <Uneven {...found.arrived} />
      <table class="numbers">
        <thead>
          <tr>
            <th scope="col">figure</th>
            <SideHead a={a} b={b} side="A" class="number" />
            <SideHead a={a} b={b} side="B" class="number" />
            <th scope="col" class="number" title="The difference of the two as they are shown, and its share of A">
              B − A
            </th>
            <th scope="col" title="Whether B is better or worse than A; a change of half a percent or less is neither">
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
              <td class={`verdict ${row.verdict}`}>{row.verdict}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Not the same requests came to both: what is compared then. */
function Uneven({ a, b, both }: Comparison["arrived"]) {
  if (a === both && b === both) return null;
  return (
    <p class="uneven">
      Not the same requests came to both: A {count(a)}, B {count(b)}, of which {count(both)} are the same.{" "}
      {both > 0
        ? "Latencies are of these; the other figures are of each run as it is, and none of them is called better."
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
          caption="Recorded reasons, by the time that requests lost to them, added up over the requests"
          rows={recorded}
          values={(row) => [row.lostA, row.lostB]}
          most={[most, most]}
          text={(inA, inB) => timesText(inA, inB, "total")}
          small={(row) => [plural(row.a, "step"), plural(row.b, "step")]}
        />
      )}
      {!(a.hasReasons && b.hasReasons) && (
        <LimitsTable
          caption="Reconstructed buckets, in steps: a guess from the counters, for want of recorded reasons in both"
          rows={guessed}
          values={(row) => [row.a, row.b]}
          most={[a.rows, b.rows]}
          text={(inA, inB) => pairText(inA, inB, COUNTS)}
          small={(row) => [percent(row.a / a.rows), percent(row.b / b.rows)]}
        />
      )}
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
  text(inA: number, inB: number): PairText;
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
          const texts = text(...pair);
          return (
            <tr key={row.name}>
              <th scope="row" title={meaningOf(row.name)} class="limit">
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
              {([texts.a, texts.b] as const).map((value, at) => (
                <td class="number" key={SIDES[at]}>
                  {value} <small>{small(row)[at]}</small>
                </td>
              ))}
              <td class="number">{texts.difference}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
