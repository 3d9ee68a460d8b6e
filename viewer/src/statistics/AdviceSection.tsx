import { useEffect, useRef } from "preact/hooks";
import type { Direction } from "../advice/rule";
import { type Finding, LEAST_STEPS } from "../advice/rules";
import type { Range } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { CopyButton } from "../export/CopyButton";
import { count, duration, plural } from "../format";
import { showTab } from "../state/moves";
import { selection } from "../state/store";
import { takeWish, wishFocus } from "../state/wish";
import { within } from "./filters";

interface AdviceProps {
  store: TraceStore;
  range: Range;
  advice: Finding[];
  settled: boolean;
  onFilter(text: string): void;
}

const DIRECTIONS: Record<Direction, string> = {
  up: "raise",
  down: "lower",
  on: "turn on",
  off: "turn off",
  set: "set",
  choose: "choose another",
  limit: "limit",
};

const ADVICE = "advice";

/** The advice, in the Statistics. */
export function showAdvice(): void {
  wishFocus(ADVICE);
  showTab("statistics");
}

/** Why nothing is advised of so few steps; null if they are enough. */
function tooFew({ first, last }: Range): string | null {
  const steps = last - first + 1;
  return steps < LEAST_STEPS ? `Advice needs at least ${LEAST_STEPS} steps; these are ${count(steps)}.` : null;
}

/** At the top of the tab: is there anything to change? */
export function AdviceLine({ advice, range }: { advice: Finding[]; range: Range }) {
  if (advice.length === 0) return <p>{tooFew(range) ?? "Nothing stands out that another setting would help."}</p>;
  const [first, ...more] = advice;
  return (
    <p>
      What to change: <strong>{change(first)}</strong>: {first.symptom} ·{" "}
      <button
        type="button"
        class="plain"
        onClick={() => document.getElementById("advice-title")?.scrollIntoView({ block: "start" })}
      >
        {more.length > 0 ? `${plural(more.length, "other idea")}, and why` : "why"}
      </button>
    </p>
  );
}

/** What to change and why, each with its evidence in this trace; nothing where nothing is wrong. */
export function AdviceSection({ store, range, advice, settled, onFilter }: AdviceProps) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // Before all is there, what stands above may still grow.
    if (settled && takeWish(ADVICE)) {
      head.current?.scrollIntoView({ block: "start" });
      head.current?.focus({ preventScroll: true });
    }
  }, [settled]);
  return (
    <section class="advice" aria-labelledby="advice-title">
      <h3 id="advice-title" ref={head} tabIndex={-1}>
        What to change {selection.value && <small class="quiet">in the selection</small>}{" "}
        {advice.length > 0 && (
          <CopyButton text={() => advice.map(adviceText).join("\n")} label="Copy the advice" words="copy" />
        )}
      </h3>
      {advice.length === 0 ? (
        <p>
          {tooFew(range) ??
            "Nothing: no limit cost requests a noticeable share of their time, and no sign of thrown-away work was found in these steps."}
        </p>
      ) : (
        <ol>
          {advice.map((finding) => (
            <li key={finding.rule}>
              <h4>
                {change(finding)}
                {finding.lostSeconds !== null && (
                  <small class="quiet"> requests lost {duration(finding.lostSeconds)}</small>
                )}
              </h4>
              <p>
                {capital(finding.symptom)}: {finding.diagnosis}. {finding.evidence}{" "}
                {finding.steps && (
                  <button
                    type="button"
                    class="plain"
                    onClick={() => onFilter(finding.steps + within(store, range))}
                    aria-label={`Show the steps behind: ${finding.symptom}`}
                  >
                    show the steps
                  </button>
                )}
              </p>
              <p class="quiet">The price: {finding.price}.</p>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

const LONGEST_VALUE = 40;

/** `raise max_num_seqs (now 100)`, as the terminal says it. */
export function change({ direction, setting, now, to }: Finding): string {
  const value = now === null || now === undefined ? "" : ` (now ${String(now).slice(0, LONGEST_VALUE)})`;
  return `${DIRECTIONS[direction]} ${setting}${to ? ` to ${to}` : ""}${value}`;
}

function adviceText(finding: Finding): string {
  return `${change(finding)}: ${finding.diagnosis}. ${finding.evidence} The price: ${finding.price}.`;
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
