import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { compare } from "../data";
import { hasTimes } from "../data/clock";
import { shortId } from "../data/labels";
import type { Row } from "../data/model/columns";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { Openers } from "../shell/Openers";
import { closeOther, origins, swapTraces } from "../state/loader";
import { extra, other, revision, setExtra, trace } from "../state/store";
import { useComputed } from "../statistics/useStatistics";
import { DifferencesSection } from "./DifferencesSection";
import { FasterSummary } from "./FasterSummary";
import { FasterTable } from "./FasterTable";
import { LinesSection } from "./LinesSection";
import { Parting } from "./Parting";
import { Settings } from "./Settings";
import { SideBySide } from "./SideBySide";
import "./compare.css";

/** The Compare tab: two traces side by side, and where they differ. */
export function CompareView() {
  const a = trace.value;
  const b = other.value;
  const chose = useRef(false);
  if (!a) return null;
  if (!b) {
    chose.current = false;
    const onFocusCapture = () => {
      chose.current = true;
    };
    return (
      <div class="compare compare-empty" onFocusCapture={onFocusCapture}>
        <h2>Set a second trace beside {a.name}</h2>
        <p>
          The same workload under another policy, GPU or setting: what changed in every figure, and the first step at
          which the two runs part.
        </p>
        <Openers target="other" />
      </div>
    );
  }
  return <Two key={`${a.key}/${b.key}`} a={a} b={b} takesFocus={chose.current} />;
}

/** `takesFocus`: what had it, the way by which B was opened, has gone. */
function Two({ a, b, takesFocus }: { a: TraceStore; b: TraceStore; takesFocus: boolean }) {
  const { value: found, failure } = useComputed<Comparison>(
    (signal) => compare(a, b, signal),
    [a, b, revision.value],
    0,
  );
  const [wanted, setWanted] = useState<{ row: Row } | null>(null);
  const alignment = extra.value["align"] === "step" || !(hasTimes(a) && hasTimes(b)) ? "step" : "time";
  const frame = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const { activeElement } = document;
    if (takesFocus && (!activeElement || activeElement === document.body)) frame.current?.focus();
  }, [takesFocus]);
  return (
    <div class="compare" data-picture="whole" ref={frame} tabIndex={-1}>
      <Head a={a} b={b} />
      {failure && <p role="alert">The two traces could not be compared: {failure}</p>}
      {!found && !failure && <p class="quiet">Comparing {a.rows + b.rows} steps …</p>}
      {found && (
        <>
          <FasterSummary a={a} b={b} found={found} />
          <Parting a={a} b={b} found={found} onShow={(row) => setWanted({ row })} />
          <Settings a={a} b={b} settings={found.settings} />
          <DifferencesSection a={a} b={b} found={found} />
          <FasterTable a={a} b={b} found={found} />
          <p class="line">
            <label>
              align by{" "}
              <select value={alignment} onChange={(event) => setExtra("align", event.currentTarget.value)}>
                <option value="time">time since the first step</option>
                <option value="step">step number</option>
              </select>
            </label>
          </p>
          <LinesSection a={a} b={b} by={alignment} />
          <SideBySide key={alignment} a={a} b={b} found={found} alignment={alignment} wanted={wanted} />
        </>
      )}
    </div>
  );
}

function Head({ a, b }: { a: TraceStore; b: TraceStore }) {
  return (
    <div class="compare-head">
      <h2 class="hidden-text">A against B</h2>
      <p>
        <Name store={a} side="A" /> <span class="quiet">against</span> <Name store={b} side="B" />
      </p>
      <button type="button" onClick={() => swapTraces()} title="The other tabs then show B">
        swap A and B
      </button>
      <button type="button" onClick={() => closeOther()}>
        close B
      </button>
      {(!origins.trace || !origins.other) && (
        <p class="quiet unkept">
          {origins.other ? "A" : "B"} is a file chosen by hand: the address does not name it, and a reload does not keep
          it.
        </p>
      )}
    </div>
  );
}

function Name({ store, side }: { store: TraceStore; side: "A" | "B" }) {
  return (
    <>
      <span class={side === "A" ? "side-a" : "side-b"} aria-hidden="true">
        {side}
      </span>{" "}
      {shortId(store.policy, 40)}, <strong class="id">{store.name}</strong>
    </>
  );
}
