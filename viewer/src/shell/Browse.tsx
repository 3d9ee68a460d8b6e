/** The traces that the server offers: filter, sort, load. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { TraceFiles, TraceListing } from "../data/model/sources";
import { count, fixed } from "../format";
import { open, type Target } from "../state/loader";
import { listSweeps, listTraces, type SweepListing } from "../state/traceList";
import { cut, middle } from "../text";
import { type Entry, entriesOf, type SortKey, sortEntries } from "./listing";

const MOST_ROWS = 300;

export function Browse({ target }: { target: Target }) {
  const all = useSignal<TraceListing[] | null>(null);
  const sweeps = useSignal<SweepListing[]>([]);
  const problem = useSignal("");
  const busy = useSignal(false);
  const text = useSignal("");
  const sort = useSignal<{ key: SortKey; down: boolean }>({ key: "date", down: true });
  const refresh = async () => {
    busy.value = true;
    problem.value = "";
    try {
      all.value = await listTraces();
      if (target === "trace") sweeps.value = await listSweeps();
    } catch (error) {
      problem.value = String((error as Error).message);
    } finally {
      busy.value = false;
    }
  };
  useEffect(() => void refresh(), []);
  const entries = entriesOf(all.value ?? []);
  const shown = sortEntries(entries, text.value, sort.value);
  return (
    <section class="card browse" aria-label="Traces of this server">
      <div class="browse-head">
        <h2>Traces of this server</h2>
        <button
          type="button"
          class={`icon${busy.value ? " busy" : ""}`}
          aria-label="Read the list again"
          title="Read the list again"
          disabled={busy.value}
          onClick={() => void refresh()}
        >
          <span aria-hidden="true">↻</span>
        </button>
        <input
          type="search"
          aria-label="Filter by name"
          placeholder="filter by name"
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value;
          }}
        />
        <fieldset class="sorts">
          <legend class="hidden-text">Sort by</legend>
          {(["name", "date", "gpu"] as const).map((key) => (
            <SortButton key={key} name={key} sort={sort.value} onSort={(next) => (sort.value = next)} />
          ))}
        </fieldset>
        <span class="quiet number">{all.value && `${count(shown.length)} of ${count(entries.length)}`}</span>
      </div>
      {problem.value && <p role="alert">The list could not be read: {cut(problem.value, 200)}</p>}
      {sweeps.value.length > 0 && <Sweeps sweeps={sweeps.value} />}
      {all.value?.length === 0 && (
        <p>
          There is no trace in the folders of this server. <code>tokenyard view FOLDER</code> names others.
        </p>
      )}
      {shown.length > 0 && (
        <Listings
          rows={shown.slice(0, MOST_ROWS)}
          target={target}
          beside={(all.value ?? []).map(({ files }) => files)}
        />
      )}
      {shown.length > MOST_ROWS && <p class="quiet">and {count(shown.length - MOST_ROWS)} more: filter by name</p>}
    </section>
  );
}

function Sweeps({ sweeps }: { sweeps: readonly SweepListing[] }) {
  return (
    <p class="sweeps">
      Sweeps, each a page of its variants:{" "}
      {sweeps.map(({ name, path }, i) => (
        <span key={path}>
          {i > 0 && ", "}
          <a href={`/sweep?path=${encodeURIComponent(path)}`} title={cut(path, 400)}>
            {middle(name, 60)}
          </a>
        </span>
      ))}
    </p>
  );
}

interface SortProps {
  name: SortKey;
  sort: { key: SortKey; down: boolean };
  onSort(sort: { key: SortKey; down: boolean }): void;
}

const SORT_TITLES: Record<SortKey, string> = { name: "Name", date: "Date", gpu: "GPU" };

function SortButton({ name, sort, onSort }: SortProps) {
  const active = sort.key === name;
  return (
    <button
      type="button"
      aria-pressed={active}
      onClick={() => onSort({ key: name, down: active ? !sort.down : name === "date" })}
    >
      {SORT_TITLES[name]}
      <span aria-hidden="true">{active ? (sort.down ? "↓" : "↑") : ""}</span>
      {active && <span class="hidden-text">{sort.down ? "falling" : "rising"}</span>}
    </button>
  );
}

function megabytes(value: number | null): string {
  return value === null ? "–" : fixed(value, value < 10 ? 1 : 0);
}

function Listings({ rows, target, beside }: { rows: readonly Entry[]; target: Target; beside: readonly TraceFiles[] }) {
  return (
    <div class="table-scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">Trace</th>
            <th scope="col">Date</th>
            <th scope="col">GPU</th>
            <th scope="col">Policy</th>
            <th scope="col">Model</th>
            <th scope="col" class="number">
              steps MB
            </th>
            <th scope="col" class="number">
              requests MB
            </th>
            <th scope="col">
              <span class="hidden-text">Open</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <ListingRow key={pathOf(row.traces[0])} row={row} target={target} beside={beside} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function pathOf({ files }: TraceListing): string {
  return files.steps?.path ?? files.requests?.path ?? "";
}

function ListingRow({ row, target, beside }: { row: Entry; target: Target; beside: readonly TraceFiles[] }) {
  const chosen = useSignal(0);
  const trace = row.traces[chosen.value] ?? row.traces[0];
  const { files } = trace;
  const path = pathOf(trace);
  const load = (requests: boolean, live = false) =>
    open(requests ? files : { ...files, requests: null }, {
      ...{ requests, live, target, beside },
      origin: { path, reqs: requests },
    });
  const name = middle(row.name, 70);
  return (
    <tr>
      <th scope="row" class="id">
        <button
          type="button"
          class="plain"
          title={`Open ${cut(path, 400)}`}
          onClick={() => void load(files.requests !== null)}
        >
          {name}
        </button>
        {row.traces.length > 1 && (
          <select
            class="ranks"
            aria-label={`Engine of ${name}`}
            title={`${count(row.traces.length)} engines: choose one`}
            value={chosen.value}
            onChange={(event) => {
              chosen.value = Number(event.currentTarget.value);
            }}
          >
            {row.traces.map((each, place) => (
              <option key={each.rank} value={place}>
                rank {each.rank}
              </option>
            ))}
          </select>
        )}
        {trace.partial && (
          <span class="partial" title="It ends before its run did: what wrote it was interrupted, or still writes.">
            {" "}
            partial
          </span>
        )}
      </th>
      <td class="number">{cut(trace.date, 30)}</td>
      <td>{cut(trace.gpu, 30)}</td>
      <td>{middle(trace.policy, 20)}</td>
      <td title={cut(trace.model, 200)}>{middle(trace.model.split("/").at(-1) ?? "", 24)}</td>
      <td class="number">{megabytes(trace.stepsMb)}</td>
      <td class="number">{megabytes(trace.requestsMb)}</td>
      <td class="buttons">
        <button
          type="button"
          aria-label={`Load ${name}`}
          title="The steps alone, which opens sooner"
          disabled={!files.steps}
          onClick={() => void load(false)}
        >
          Load
        </button>
        <button
          type="button"
          aria-label={`+reqs: load ${name} with its requests`}
          title="With the records of each request: their blocks and prefix hits in every step"
          disabled={!files.requests}
          onClick={() => void load(true)}
        >
          +reqs
        </button>
        {target === "trace" && (
          <button
            type="button"
            aria-label={`Live: follow ${name}`}
            title="Follow it while it is being written"
            disabled={!files.steps?.path.endsWith(".jsonl")}
            onClick={() => void load(files.requests !== null, true)}
          >
            Live
          </button>
        )}
      </td>
    </tr>
  );
}
