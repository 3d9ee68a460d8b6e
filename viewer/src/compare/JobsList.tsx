import { shortId } from "../data/labels";
import type { Comparison } from "../data/model/comparison";
import type { TraceStore } from "../data/model/trace";
import { count, milliseconds, signed } from "../format";

interface JobsListProps {
  a: TraceStore;
  b: TraceStore;
  found: Comparison;
}

const SHOWN = 200;

type Job = Comparison["jobs"][number];

/** Job by job: how long each took and waited, the largest difference first. */
export function JobsList({ a, b, found }: JobsListProps) {
  const shown = found.jobs.slice(0, SHOWN);
  return (
    <section aria-labelledby="jobs-title">
      <h3 id="jobs-title">Jobs</h3>
      {found.jobs.length === 0 && <p class="quiet">Neither trace names jobs.</p>}
      {found.jobs.length > SHOWN && (
        <p class="quiet">
          The {SHOWN} of {count(found.jobs.length)} jobs that differ most.
        </p>
      )}
      {shown.length > 0 && (
        <table class="numbers">
          <thead>
            <tr>
              <th scope="col">job</th>
              {["A began", "A took", "A waited", "B began", "B took", "B waited", "took, B − A", "waited, B − A"].map(
                (name) => (
                  <th scope="col" class="number" key={name}>
                    {name}
                  </th>
                ),
              )}
            </tr>
          </thead>
          <tbody>
            {shown.map((job) => (
              <tr key={job.id}>
                <th scope="row" class="id">
                  {shortId(job.id, 32)}
                </th>
                <Times side={job.a} start={a.steps.ts[0]} />
                <Times side={job.b} start={b.steps.ts[0]} />
                <td class="number">{apart(job, (side) => side.end - side.begin)}</td>
                <td class="number">{apart(job, (side) => side.waited)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
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

function apart({ a, b }: Job, measure: (side: NonNullable<Job["a"]>) => number): string {
  const change = a && b ? measure(b) - measure(a) : Number.NaN;
  return Number.isNaN(change) ? "–" : signed(change, milliseconds);
}
