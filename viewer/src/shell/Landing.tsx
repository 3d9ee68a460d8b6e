/** With nothing loaded: the ways in, a sample, and how to make a trace. */

import { useLayoutEffect } from "preact/hooks";
import { actionOf } from "../state/keyboard";
import { closed, open, reopenClosed } from "../state/loader";
import { failure, loading } from "../state/store";
import { middle } from "../text";
import { Found } from "./DropCard";
import { FailureCard } from "./FailureCard";
import { HelpButton, helpOpen } from "./Help";
import { Openers } from "./Openers";
import { LoadCard } from "./Progress";
import { targetOf } from "./pageKeys";
import { sample } from "./sample";
import { ThemeButton } from "./Toolbar";

export function Landing() {
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (helpOpen.peek() || actionOf(event, targetOf(event.target)) !== "help") return;
      event.preventDefault();
      helpOpen.value = true;
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  return (
    <main class="landing">
      <div class="landing-head">
        <div>
          <h1>Tokenyard viewer</h1>
          <p class="quiet">What vLLM's scheduler decided, step by step, and why requests had to wait.</p>
        </div>
        <span>
          <ThemeButton /> <HelpButton />
        </span>
      </div>
      {failure.value && <FailureCard />}
      {loading.value && <LoadCard state={loading.value} />}
      {closed.value && !loading.value && (
        <p>
          <button type="button" class="primary" onClick={reopenClosed}>
            Back to {middle(closed.value.store.name, 60)}
          </button>
        </p>
      )}
      <Found />
      <Openers target="trace">
        <SampleCard />
        <MakeCard />
      </Openers>
    </main>
  );
}

function SampleCard() {
  return (
    <section class="card">
      <h2>A sample</h2>
      <p>A short replay of coding agents on a small GPU: most of what the page can show happens in it.</p>
      <button type="button" onClick={() => void open(sample())}>
        Open the sample
      </button>
    </section>
  );
}

function MakeCard() {
  return (
    <section class="card">
      <h2>Make a trace</h2>
      <p>Replay a workload on a virtual clock, then look at it:</p>
      <pre>tokenyard run agentic --trace traces/agentic --record-requests{"\n"}tokenyard view traces/agentic</pre>
      <p>
        Or let an engine write one while it serves: <code>SCHED_TRACE_PATH=traces</code>.
      </p>
    </section>
  );
}
