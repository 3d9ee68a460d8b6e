import { useEffect, useState } from "preact/hooks";
import type { TraceStore } from "../data/model/trace";
import { isServed } from "../export/notebook";
import { problemOf } from "../export/serverFormats";
import { count, duration, plural } from "../format";
import { askWhatLacks, lacks } from "../state/lacks";
import { cut } from "../text";

interface Answer {
  columns: { name: string; type: string }[];
  rows: unknown[][];
  truncated: boolean;
  seconds: number;
  damage: string[];
}

const EXAMPLE = `SELECT reason, count(*) AS steps, sum(num_requests) AS held
FROM outcomes WHERE reason IS NOT NULL GROUP BY reason ORDER BY steps DESC`;
const SHOWN = 200;
const LONGEST = 200;

/** SQL over the tables of the whole trace: the server answers, so there is none of a file that was dropped. */
export function SqlSection({ store }: { store: TraceStore }) {
  const [sql, setSql] = useState(EXAMPLE);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const served = isServed(store);
  useEffect(() => {
    if (served) void askWhatLacks();
  }, [served]);
  if (!served) return null;
  const missing = lacks.value["query"];
  const ask = async () => {
    setBusy(true);
    setProblem("");
    try {
      const found = await fetch(`/api/query?${new URLSearchParams({ path: store.source, sql })}`);
      if (found.ok) setAnswer((await found.json()) as Answer);
      else setProblem(await problemOf(found));
    } catch (error) {
      setProblem(`the server does not answer (${(error as Error).message})`);
    }
    setBusy(false);
  };
  return (
    <section aria-labelledby="sql-title" class="sql" data-picture="none">
      <h3 id="sql-title">Ask in SQL</h3>
      <p class="quiet">
        One SELECT over the whole trace, whatever is selected. Tables: steps, requests; a view per event: start,
        snapshots, decisions, outcomes, lookups, completions, arrivals, finishes. Nothing is changed.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void ask();
        }}
      >
        <textarea
          aria-label="SQL"
          rows={4}
          spellcheck={false}
          value={sql}
          onInput={(event) => setSql(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !missing) void ask();
          }}
        />
        <button type="submit" disabled={busy || sql.trim() === "" || missing !== undefined}>
          {busy ? "asking …" : "ask"}
        </button>
      </form>
      {missing && <p class="quiet">{missing}</p>}
      {problem && <p role="alert">{cut(problem, 600)}</p>}
      {answer && !problem && <Result answer={answer} />}
    </section>
  );
}

function Result({ answer: { columns, rows, truncated, seconds, damage } }: { answer: Answer }) {
  const more = truncated ? " and more" : "";
  return (
    <div class="sql-result">
      <p role="status">
        {plural(rows.length, "row")}
        {more}, {duration(seconds)}.{rows.length > SHOWN && ` The first ${count(SHOWN)} are shown.`}
        {damage.map((each) => ` ${cut(each, 300)}`)}
      </p>
      <table class="numbers">
        <thead>
          <tr>
            {columns.map(({ name, type }, at) => (
              <th scope="col" key={`${name} ${at}`} title={cut(type, LONGEST)}>
                {cut(name, LONGEST)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, SHOWN).map((row, line) => (
            <tr key={line}>
              {row.map((value, at) => (
                <td key={columns[at]?.name} class={typeof value === "number" ? "number" : "id"}>
                  {shown(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function shown(value: unknown): string {
  if (value === null || value === undefined) return "";
  return cut(typeof value === "string" ? value : JSON.stringify(value), LONGEST);
}
