import { goodput, isBounded } from "../data";
import type { Statistics } from "../data/model/statistics";
import { count, fixed, percent, plural } from "../format";
import { BOUND_KEYS, boundOf, bounds, OUTCOME_KEY } from "../state/bounds";
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
          <label key={name} title={meaning}>
            {title} ≤{" "}
            <input
              type="text"
              inputMode="decimal"
              size={6}
              value={text}
              aria-invalid={wrong}
              onInput={(event) => setExtra(BOUND_KEYS[name], event.currentTarget.value)}
            />{" "}
            ms
          </label>
        ))}
      </form>
      {given
        .filter(({ wrong }) => wrong)
        .map(({ name, title, text }) => (
          <p key={name} role="alert">
            {title}: “{cut(text, 40)}” bounds nothing. Give milliseconds above 0, such as 500, or leave it empty.
          </p>
        ))}
      {found && <Outcome found={found} />}
    </div>
  );
}

function Outcome({ found }: { found: Statistics }) {
  if (!isBounded(bounds.value)) {
    return <p class="quiet">Bound a latency to count the goodput: requests per second that end within every bound.</p>;
  }
  const good = goodput(found, bounds.value);
  if (!good) return <p class="quiet">No request that ended in these steps tells how long it took: no goodput.</p>;
  const rate = good.requestsPerSecond === null ? "" : `${fixed(good.requestsPerSecond, 2)} requests/s`;
  return (
    <p role="status">
      Goodput: <strong>{rate}</strong>
      {rate && ", "}
      {plural(good.requests, "request")} of the {count(found.finished)} that ended (
      <strong>{percent(good.share)}</strong>) met every bound.{" "}
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
