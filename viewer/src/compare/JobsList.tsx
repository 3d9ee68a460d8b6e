import { useMemo, useState } from "preact/hooks";
import { shortId } from "../data/labels";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { download } from "../export/download";
import { count, milliseconds, plural, signed } from "../format";
import { showTab } from "../state/moves";
import { filterText } from "../state/store";
import {
  change,
  isWhole,
  type Job,
  type JobOrder,
  jobsCsv,
  MEASURES,
  type Measure,
  orderedJobs,
  totalsOf,
} from "./jobs";

interface JobsListProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

const SHOWN = 200;
const ORDERS: Record<JobOrder, string> = { took: "difference in time", waited: "difference in waiting", name: "name" };

/** Job by job: how long each took and waited in A and in B, what all of them gained or lost, and who most. */
export function JobsList({ a, b, found }: JobsListProps) {
  const [order, setOrder] = useState<JobOrder>("took");
  const [text, setText] = useState("");
  const jobs = useMemo(() => orderedJobs(found.jobs, order, text), [found.jobs, order, text]);
  return (
    <section aria-labelledby="jobs-title">
      <h3 id="jobs-title">Jobs</h3>
      {found.jobs.length === 0 ? (
        <p class="quiet">Neither trace names jobs.</p>
      ) : (
        <>
          <Totals jobs={jobs} />
          <p class="line">
            <label>
              sort by{" "}
              <select value={order} onChange={(event) => setOrder(event.currentTarget.value as JobOrder)}>
                {Object.entries(ORDERS).map(([name, words]) => (
                  <option key={name} value={name}>
                    {words}
                  </option>
                ))}
              </select>
            </label>{" "}
            <input
              type="search"
              aria-label="Jobs whose name holds"
              placeholder="name"
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />{" "}
            <button type="button" onClick={() => download(jobsCsv(jobs), `${a.name}.against.${b.name}.jobs.csv`)}>
              save as CSV
            </button>
            {jobs.length > SHOWN && (
              <span class="quiet">
                {" "}
                the first {SHOWN} of {count(jobs.length)}
              </span>
            )}
          </p>
          <Table a={a} b={b} jobs={jobs.slice(0, SHOWN)} />
        </>
      )}
    </section>
  );
}

function Totals({ jobs }: { jobs: readonly Job[] }) {
  const { both, cut, faster, slower, took, waited } = totalsOf(jobs);
  const left = cut > 0 && ` ${plural(cut, "job")} not finished in one of the two: not judged.`;
  if (both === 0) return <p>No job was finished in both.{left}</p>;
  return (
    <p>
      Of {plural(both, "job")} that both finished, <strong>{count(faster)} took less time in B</strong>,{" "}
      <strong>{count(slower)} more</strong>. Together they took {signed(took, milliseconds)} and waited{" "}
      {signed(waited, milliseconds)}, B against A.{left}
    </p>
  );
}

const HEADS = ["A began", "A took", "A waited", "B began", "B took", "B waited", "took, B − A", "waited, B − A"];

function Table({ a, b, jobs }: { a: TraceStore; b: TraceStore; jobs: readonly Job[] }) {
  const longest = Math.max(...jobs.flatMap((job) => [job.a, job.b].map((side) => (side ? MEASURES.took(side) : 0))), 0);
  return (
    <table class="numbers jobs">
      <thead>
        <tr>
          <th scope="col">job</th>
          <th scope="col" title="From its beginning in each run; the dark part is how long it waited">
            A over B
          </th>
          {HEADS.map((name) => (
            <th scope="col" class="number" key={name}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={job.id}>
            <th scope="row">
              <button
                type="button"
                class="plain id"
                title="Its lane in A"
                disabled={!job.a}
                onClick={() => {
                  filterText.value = `job:"${job.id.replaceAll('"', "").slice(0, 200)}"`;
                  showTab("requests");
                }}
              >
                {shortId(job.id, 32)}
              </button>
            </th>
            <td aria-hidden="true" class="pair">
              <Bar side={job.a} longest={longest} />
              <Bar side={job.b} longest={longest} />
            </td>
            <Times side={job.a} start={a.steps.ts[0]} />
            <Times side={job.b} start={b.steps.ts[0]} />
            <Change job={job} measure="took" />
            <Change job={job} measure="waited" />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** As long as the job took; the dark part is how long it waited, wherever in it. */
function Bar({ side, longest }: { side: Job["a"]; longest: number }) {
  const took = side ? MEASURES.took(side) : Number.NaN;
  if (!side || !(took > 0) || !(longest > 0)) return <span />;
  const waited = Math.min(side.waited / took, 1);
  return (
    <span class="took" style={{ width: `${(100 * took) / longest}%` }}>
      <span style={{ width: `${100 * waited}%` }} />
    </span>
  );
}

/** What is better in B is marked, and what is worse. */
function Change({ job, measure }: { job: Job; measure: Measure }) {
  const by = change(job, measure);
  if (Number.isNaN(by)) {
    const why = job.a && job.b && !isWhole(job) ? "Not finished in one of the two" : undefined;
    return (
      <td class="number" title={why}>
        {why ? "cut" : "–"}
      </td>
    );
  }
  const verdict = by < 0 ? "better" : by > 0 ? "worse" : "";
  return (
    <td class={`number verdict ${verdict}`}>
      {verdict && <span aria-hidden="true">{verdict === "better" ? "▲ " : "▼ "}</span>}
      {signed(by, milliseconds)}
    </td>
  );
}

function Times({ side, start }: { side: Job["a"]; start: number }) {
  if (!side) {
    return (
      <td colSpan={3} class="quiet">
        not there
      </td>
    );
  }
  return (
    <>
      <td class="number">{milliseconds(side.begin - start)}</td>
      <td class="number">{milliseconds(side.end - side.begin)}</td>
      <td class="number">{milliseconds(side.waited)}</td>
    </>
  );
}
