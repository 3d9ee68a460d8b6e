import { compare } from "../data";
import type { Alignment, Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { Openers } from "../shell/Openers";
import { closeOther, swapTraces } from "../state/loader";
import { extra, other, revision, setExtra, trace } from "../state/store";
import { useComputed } from "../statistics/useStatistics";
import { DifferencesSection } from "./DifferencesSection";
import { JobsList } from "./JobsList";
import { LinesSection } from "./LinesSection";
import { Parting } from "./Parting";
import { Settings } from "./Settings";
import { SideBySide } from "./SideBySide";
import "./compare.css";

/** The Compare tab: two traces side by side, and where they differ. */
export function CompareView() {
  const a = trace.value;
  const b = other.value;
  if (!a) return null;
  if (!b) {
    return (
      <div class="compare compare-empty">
        <h2>Set a second trace beside {a.name}</h2>
        <p>
          The same workload under another policy, GPU or setting: what changed in every figure, and the first step at
          which the two runs part.
        </p>
        <Openers target="other" />
      </div>
    );
  }
  return <Two key={`${a.key}/${b.key}`} a={a} b={b} />;
}

function Two({ a, b }: { a: TraceStore; b: TraceStore }) {
  const { value: found, failure } = useComputed<Comparison>(
    (signal) => compare(a, b, signal),
    [a, b, revision.value],
    0,
  );
  const alignment = alignmentOf(extra.value["align"]);
  return (
    <div class="compare" data-picture="whole">
      <Head a={a} b={b} alignment={alignment} />
      {failure && <p role="alert">The two traces could not be compared: {failure}</p>}
      {!found && !failure && <p class="quiet">Comparing {a.rows + b.rows} steps …</p>}
      {found && (
        <>
          <Parting a={a} b={b} found={found} />
          <Settings settings={found.settings} />
          <DifferencesSection a={a} b={b} found={found} />
          <LinesSection a={a} b={b} by={alignment === "step" ? "step" : "time"} />
          {alignment === "job" ? (
            <JobsList a={a} b={b} found={found} />
          ) : (
            <SideBySide key={alignment} a={a} b={b} found={found} alignment={alignment} />
          )}
        </>
      )}
    </div>
  );
}

const ALIGNMENTS: Record<Alignment, string> = {
  step: "step number",
  time: "time since the first step",
  job: "job",
};

function alignmentOf(name: string | undefined): Alignment {
  return name === "time" || name === "job" ? name : "step";
}

function Head({ a, b, alignment }: { a: TraceStore; b: TraceStore; alignment: Alignment }) {
  return (
    <div class="compare-head">
      <p>
        <span class="side-a" aria-hidden="true">
          A
        </span>{" "}
        <strong class="id">{a.name}</strong> <span class="quiet">against</span>{" "}
        <span class="side-b" aria-hidden="true">
          B
        </span>{" "}
        <strong class="id">{b.name}</strong>
      </p>
      <label>
        align by{" "}
        <select value={alignment} onChange={(event) => setExtra("align", event.currentTarget.value)}>
          {Object.entries(ALIGNMENTS).map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
      </label>
      <button type="button" onClick={() => swapTraces()} title="The other tabs then show B">
        swap A and B
      </button>
      <button type="button" onClick={() => closeOther()}>
        close B
      </button>
    </div>
  );
}
