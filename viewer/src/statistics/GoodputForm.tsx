import { goodput, isBounded } from "../data";
import type { Statistics } from "../data/model/statistics";
import { count, fixed, percent, plural } from "../format";
import { BOUND_KEYS, boundOf, bounds, boundText, OUTCOME_KEY } from "../state/bounds";
import { showTab } from "../state/moves";
import { extra, setExtra } from "../state/store";
import { wishFocus } from "../state/wish";
import { cut } from "../text";

const FIELDS = [
  ["ttft", "TTFT", "time to first token: arrival to first token"],
  ["tpot", "TPOT", "time per output token after the first"],
  ["e2e", "E2E", "end to end: arrival to end"],
] as const;

/** Bounds on latencies, and how many requests met all of them. */
export function GoodputForm({ found }: { found: Statistics | null }) {
  const given = FIELDS.map(([name, title, meaning]) => {
    const text = extra.value[BOUND_KEYS[name]] ?? "";
    return { name, title, meaning, text, wrong: text.trim() !== "" && boundOf(text) === null };
  });
  return (
    <div class="goodput">
      <form aria-label="Bounds of the goodput" onSubmit={(event) => event.preventDefault()}>
        {given.map(({ name, title, meaning, text, wrong }) => (
          <label key={name} title={`${meaning}; with its unit, as 500ms or 5s, or a number of milliseconds`}>
            {title} ≤{" "}
            <input
              type="text"
              aria-label={`${title} ≤ ms, or with a unit`}
              size={6}
              value={text}
              aria-invalid={wrong}
              onInput={(event) => setExtra(BOUND_KEYS[name], event.currentTarget.value)}
            />{" "}
            <span class="quiet">{unitOf(text)}</span>
          </label>
        ))}
      </form>
      {given
        .filter(({ wrong }) => wrong)
        .map(({ name, title, text }) => (
          <p key={name} role="alert">
            {title}: “{cut(text, 40)}” bounds nothing. Give a time above 0, such as 500ms or 5s, or leave it empty.
          </p>
        ))}
      {found && <Outcome found={found} />}
    </div>
  );
}

/** What stands behind a field: the unit of a bare number, and what a large one is. */
function unitOf(text: string): string {
  const bound = boundOf(text);
  if (bound === null) return text.trim() === "" ? "ms" : "";
  if (Number.isNaN(Number(text))) return "";
  return bound < 1e3 ? "ms" : `ms = ${boundText(bound)}`;
}

function Outcome({ found }: { found: Statistics }) {
  if (!isBounded(bounds.value)) {
    return (
      <p class="quiet">Bound a latency to count the goodput: requests per second that are served within every bound.</p>
    );
  }
  const good = goodput(found, bounds.value);
  if (!good) return <p class="quiet">No request of these steps tells how long it took: no goodput.</p>;
  const rate = good.requestsPerSecond === null ? "" : `${fixed(good.requestsPerSecond, 2)} requests/s`;
  return (
    <p role="status">
      Goodput: <strong>{rate}</strong>
      {rate && ", "}
      {plural(good.requests, "request")} of the {count(found.outcomes.arrived)} that arrived (
      <strong>{percent(good.share)}</strong>) met every bound
      {good.open > 0 && `; ${count(good.open)} more still may`}.{" "}
      <button type="button" onClick={() => showTable("met")}>
        table of those that met
      </button>{" "}
      <button type="button" onClick={() => showTable("missed")}>
        table of those that missed
      </button>
    </p>
  );
}

function showTable(outcome: string): void {
  extra.value = { ...extra.value, show: "table", [OUTCOME_KEY]: outcome };
  wishFocus("table");
  showTab("requests");
}
