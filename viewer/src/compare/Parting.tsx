import type { ComponentChildren } from "preact";
import { shortId } from "../data/labels";
import type { RequestIndex, Row } from "../data/model/columns";
import type { Comparison, DecidedSide, DecisionParting } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count, plural } from "../format";
import { cut } from "../text";
import { LOOK_TITLES, lookAt, type SideName } from "./goTo";

interface PartingProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

/** Where the two runs part, and why: the first step that decides differently, with what each of the two had before it. */
export function Parting({ a, b, found }: PartingProps) {
  const { parting, decision } = found;
  return (
    <section class="parting" aria-label="Where they part">
      {decision ? (
        <Decision a={a} b={b} parting={parting} decision={decision} />
      ) : (
        <Alike a={a} b={b} parting={parting} />
      )}
    </section>
  );
}

/** No decision differs: the same run, one that ends earlier, or other numbers beside the same decisions. */
function Alike({ a, b, parting }: { a: TraceStore; b: TraceStore; parting: Comparison["parting"] }) {
  const steps = count(Math.min(a.rows, b.rows));
  if (!parting) {
    return (
      <p>
        <strong>They never part</strong>: every step is the same ({steps} steps).
      </p>
    );
  }
  const rest = a.rows - b.rows;
  const end = rest === 0 ? "" : ` ${rest > 0 ? "A" : "B"} goes on for ${plural(Math.abs(rest), "step")} after that.`;
  if (parting.what === "one ends") {
    return (
      <p>
        <strong>They never part</strong> as far as both go ({steps} steps).{end}
      </p>
    );
  }
  return (
    <>
      <p>
        <strong>They decide the same</strong> as far as both go ({steps} steps).{end} From step{" "}
        {count(a.steps.number[parting.rowA])} on other numbers differ: {parting.what}, {parting.detail}.
      </p>
      <Look row={parting.rowA} />
    </>
  );
}

interface DecisionProps {
  a: TraceStore;
  b: TraceStore;
  parting: Comparison["parting"];
  decision: DecisionParting;
}

function Decision({ a, b, parting, decision }: DecisionProps) {
  const { row } = decision;
  const earlier = parting && parting.rowA < row ? parting : null;
  return (
    <>
      <p>
        <strong>
          They part at step <span class="number">{count(a.steps.number[row])}</span>
        </strong>
        {row === 0 ? " (the first)" : `, after ${plural(row, "equal decision")}`}: {decision.what}.
      </p>
      <p class="quiet parting-detail">{decision.detail}</p>
      {earlier && (
        <p>
          They decided the same until then, but not on the same state: from step {count(a.steps.number[earlier.rowA])}{" "}
          on, {earlier.what}: {earlier.detail}.
        </p>
      )}
      <Sides a={a} b={b} decision={decision} />
      <Look row={row} />
    </>
  );
}

function Look({ row }: { row: Row }) {
  return (
    <p class="actions">
      {(["A", "B"] as const).map((side) => (
        <button type="button" key={side} title={LOOK_TITLES[side]} onClick={() => lookAt(side, row)}>
          look at it in {side}
        </button>
      ))}
    </p>
  );
}

type Cell = (side: DecidedSide) => { text: string; more?: string };

const of = (value: number | null, whole: number | null) => ({
  text: count(value),
  more: whole === null ? "" : `of ${count(whole)}`,
});

const NUMBERS: [name: string, title: string, cell: Cell][] = [
  [
    "running before",
    "Requests that ran before the step, and how many may",
    (side) => of(side.running, side.maxRunning),
  ],
  ["waiting before", "Requests in the waiting queue before the step", (side) => ({ text: count(side.waiting) })],
  ["free blocks", "KV blocks that were free before the step", (side) => of(side.freeBlocks, side.totalBlocks)],
  [
    "pinned blocks",
    "Blocks that a policy kept for finished turns, and of how many jobs",
    ({ pinnedBlocks, pinnedJobs }) => ({
      text: count(pinnedBlocks),
      more: pinnedJobs ? `of ${plural(pinnedJobs, "job")}` : "",
    }),
  ],
  ["tokens scheduled", "In this step, and its token budget", (side) => of(side.tokens, side.tokenBudget)],
];

const OWN = [
  ["admitted", "admitted, only here"],
  ["resumed", "resumed, only here"],
  ["preempted", "preempted, only here"],
] as const;

function Sides({ a, b, decision }: { a: TraceStore; b: TraceStore; decision: DecisionParting }) {
  const lists = OWN.filter(([name]) => decision.a[name].length + decision.b[name].length > 0);
  const numbers = NUMBERS.map(([name, title, cell]) => ({ name, title, a: cell(decision.a), b: cell(decision.b) }));
  return (
    <table class="numbers cause" aria-label="What each did in this step">
      <thead>
        <tr>
          <td />
          <th scope="col">A</th>
          <th scope="col">B</th>
        </tr>
      </thead>
      <tbody>
        {lists.map(([name, words]) => (
          <Line key={name} name={words} apart>
            <Ids store={a} side="A" row={decision.row} ids={decision.a[name]} />
            <Ids store={b} side="B" row={decision.row} ids={decision.b[name]} />
          </Line>
        ))}
        <Line
          name="held back by"
          apart={decision.a.refusal?.reason !== decision.b.refusal?.reason}
          title="The recorded reason that held back most of the waiting requests"
        >
          <Refusal side={decision.a} />
          <Refusal side={decision.b} />
        </Line>
        {numbers.map((line) => (
          <Line key={line.name} name={line.name} title={line.title} apart={differ(line.a, line.b)}>
            <NumberCell {...line.a} />
            <NumberCell {...line.b} />
          </Line>
        ))}
      </tbody>
    </table>
  );
}

function differ(a: ReturnType<Cell>, b: ReturnType<Cell>): boolean {
  return a.text !== b.text || a.more !== b.more;
}

function Line(props: { name: string; title?: string; apart: boolean; children: ComponentChildren }) {
  return (
    <tr title={props.title} class={props.apart ? "apart" : ""}>
      <th scope="row">
        {props.name}
        {props.apart && <span class="hidden-text"> (differs)</span>}
      </th>
      {props.children}
    </tr>
  );
}

function NumberCell({ text, more }: { text: string; more?: string }) {
  return (
    <td class="number">
      {text} {more && <small class="quiet">{more}</small>}
    </td>
  );
}

function Refusal({ side: { refusal } }: { side: DecidedSide }) {
  if (!refusal?.reason || refusal.held === 0) return <td class="quiet">nobody was</td>;
  return (
    <td title={refusal.meaning}>
      <code>{cut(refusal.reason, 60)}</code> ({plural(refusal.held, "request")})
      {refusal.numbers && <small class="quiet"> {refusal.numbers}</small>}
    </td>
  );
}

const SHOWN = 4;

interface IdsProps {
  store: TraceStore;
  side: SideName;
  row: Row;
  ids: RequestIndex[];
}

function Ids({ store, side, row, ids }: IdsProps) {
  return (
    <td>
      {ids.length === 0 && "–"}
      {ids.slice(0, SHOWN).map((request) => (
        <button
          type="button"
          class="plain id"
          key={request}
          title={LOOK_TITLES[side]}
          onClick={() => lookAt(side, row, request)}
        >
          {shortId(store.requests.ids[request], 32)}
        </button>
      ))}
      {ids.length > SHOWN && <span class="quiet"> and {count(ids.length - SHOWN)} more</span>}
    </td>
  );
}
