import type { ComponentChildren } from "preact";
import { shortId } from "../data/labels";
import type { RequestIndex, Row } from "../data/model/columns";
import type { Comparison, DecidedSide, DecisionParting } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count, plural } from "../format";
import { cut } from "../text";
import { LOOK_TITLES, lookAt, type SideName } from "./goTo";
import { SideHead, sideWords } from "./SideHead";

interface PartingProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
  /** A row of A is wanted in the list of steps. */
  onShow(row: Row): void;
}

/** Where the two runs part, and why: the first step that decides differently, with what each of the two had before it. */
export function Parting({ a, b, found, onShow }: PartingProps) {
  const { parting, decision } = found;
  return (
    <section class="parting" aria-label="Where they part">
      {decision ? (
        <Decision a={a} b={b} found={found} decision={decision} onShow={onShow} />
      ) : (
        <Alike a={a} b={b} parting={parting} onShow={onShow} />
      )}
    </section>
  );
}

/** No decision differs: the same run, one that ends earlier, or other numbers beside the same decisions. */
function Alike({ a, b, parting, onShow }: Omit<PartingProps, "found"> & { parting: Comparison["parting"] }) {
  const steps = count(Math.min(a.rows, b.rows));
  if (!parting) {
    return (
      <p>
        <strong>They never diverge</strong>: every step is the same ({steps} steps).
      </p>
    );
  }
  const rest = a.rows - b.rows;
  const end = rest === 0 ? "" : ` ${rest > 0 ? "A" : "B"} goes on for ${plural(Math.abs(rest), "step")} after that.`;
  if (parting.what === "one ends") {
    return (
      <p>
        <strong>They never diverge</strong> as far as both go ({steps} steps).{end}
      </p>
    );
  }
  return (
    <>
      <p>
        <strong>They decide the same</strong> as far as both go ({steps} steps).{end} From step{" "}
        {count(a.steps.number[parting.rowA])} on other numbers differ: {parting.what}, {parting.detail}.
      </p>
      <Look row={parting.rowA} onShow={onShow} />
    </>
  );
}

interface DecisionProps extends PartingProps {
  decision: DecisionParting;
}

function Decision({ a, b, found, decision, onShow }: DecisionProps) {
  const { row } = decision;
  const deeds = [deedsOf(a, decision.a), deedsOf(b, decision.b)];
  const words = sideWords(a, b);
  const name = (side: SideName) => (words[side] ? `${side} (${words[side]})` : side);
  const told = deeds.some((deed) => deed !== "");
  return (
    <>
      <p>
        <strong>
          Their decisions diverge at step <span class="number">{count(a.steps.number[row])}</span>
        </strong>
        {row === 0 ? " (the first)" : `, after ${plural(row, "equal decision")}`}:{" "}
        {told
          ? `${name("A")} ${deeds[0] || "does not"}, ${name("B")} ${deeds[1] || "does not"}.`
          : `${decision.what}, ${decision.detail}.`}
      </p>
      <Causes a={a} b={b} found={found} decision={decision} onShow={onShow} />
      <Sides a={a} b={b} decision={decision} />
      <Look row={row} onShow={onShow} />
    </>
  );
}

/** `admits chat_0023_t0`: what it does in the step and the other does not. */
function deedsOf(store: TraceStore, side: DecidedSide): string {
  const deeds = OWN.filter(([name]) => side[name].length > 0).map(([name, , verb]) => {
    const ids = side[name].slice(0, SHOWN).map((request) => shortId(store.requests.ids[request], 32));
    const more = side[name].length > SHOWN ? ` and ${count(side[name].length - SHOWN)} more` : "";
    return `${verb} ${ids.join(", ")}${more}`;
  });
  return deeds.join(" and ");
}

/** What was not the same before the step: the policy, and the state from which the two decided. */
function Causes({ a, b, found, decision, onShow }: DecisionProps) {
  const { parting, settings } = found;
  const earlier = parting && parting.rowA < decision.row ? parting : null;
  const told = settings?.filter((setting) => setting.a !== null && setting.b !== null) ?? [];
  if (!earlier && a.policy === b.policy && told.length === 0) return null;
  const names = told.slice(0, SHOWN).map((setting) => cut(setting.name, 60));
  const more = told.length > SHOWN ? ` and ${count(told.length - SHOWN)} more` : "";
  return (
    <p>
      What differed before:{" "}
      {a.policy !== b.policy
        ? `the policy differs, ${shortId(a.policy, 40)} in A and ${shortId(b.policy, 40)} in B`
        : names.length > 0
          ? `other settings: ${names.join(", ")}${more}`
          : "no setting that both tell"}
      {earlier && (
        <>
          ; they decided the same until then, but not on the same state: from{" "}
          <button type="button" class="plain" title="Show it in the list of steps" onClick={() => onShow(earlier.rowA)}>
            step {count(a.steps.number[earlier.rowA])}
          </button>{" "}
          on, {earlier.what}: {earlier.detail}
        </>
      )}
      .
    </p>
  );
}

function Look({ row, onShow }: { row: Row; onShow(row: Row): void }) {
  return (
    <p class="actions">
      {(["A", "B"] as const).map((side) => (
        <button type="button" key={side} title={LOOK_TITLES[side]} onClick={() => lookAt(side, row)}>
          look at it in {side}
        </button>
      ))}{" "}
      <button type="button" onClick={() => onShow(row)}>
        both, step by step
      </button>
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
  ["admitted", "admitted, only here", "admits"],
  ["resumed", "resumed, only here", "resumes"],
  ["preempted", "preempted, only here", "preempts"],
] as const;

function Sides({ a, b, decision }: { a: TraceStore; b: TraceStore; decision: DecisionParting }) {
  const heads = [a.requests.ids[decision.a.firstInQueue] ?? "", b.requests.ids[decision.b.firstInQueue] ?? ""];
  const lists = OWN.filter(([name]) => decision.a[name].length + decision.b[name].length > 0);
  const numbers = NUMBERS.map(([name, title, cell]) => ({ name, title, a: cell(decision.a), b: cell(decision.b) }));
  return (
    <table class="numbers cause" aria-label="What each did in this step">
      <thead>
        <tr>
          <td />
          <SideHead a={a} b={b} side="A" />
          <SideHead a={a} b={b} side="B" />
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
          name="first in the queue"
          apart={heads[0] !== heads[1]}
          title="At the head of the waiting queue before the step"
        >
          <Ids store={a} side="A" row={decision.row} ids={[decision.a.firstInQueue].filter((head) => head >= 0)} />
          <Ids store={b} side="B" row={decision.row} ids={[decision.b.firstInQueue].filter((head) => head >= 0)} />
        </Line>
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
  if (!refusal?.reason || refusal.held === 0) return <td class="quiet">no request was</td>;
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
