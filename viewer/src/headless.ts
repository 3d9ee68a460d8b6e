/**
 * The viewer's figures without a page: for the tests that compare them with the package's (tests/support/headless.py).
 *
 * A line of standard input is one question: one trace, or two to compare. A line of standard output is its answer.
 */

import { createInterface } from "node:readline";
import { known } from "./data/columns";
import { compare } from "./data/compare";
import { BUCKETS } from "./data/model/reasons";
import type { Bounds } from "./data/model/slo";
import { partial } from "./data/partial";
import { storeFrom } from "./data/sampleStore";
import { goodput } from "./data/slo";
import { statistics } from "./data/statistics";
import type { StoreInside } from "./data/store";
import { verdict } from "./data/verdict";
import { waitingSplit } from "./data/waiting";

interface Lines {
  steps: string[];
  requests: string[];
}

interface Question {
  trace: Lines;
  other?: Lines;
  /** Of the goodput. */
  bounds?: Bounds;
}

async function answer({ trace, other, bounds }: Question): Promise<unknown> {
  const store = await storeFrom(trace.steps, trace.requests);
  const found = await statistics(store, { first: 0, last: store.rows - 1 });
  const second = other && (await storeFrom(other.steps, other.requests));
  return {
    steps: Array.from({ length: store.rows }, (_, row) => stepAt(store, row)),
    statistics: { ...found, buckets: Object.fromEntries(BUCKETS.map((name, i) => [name, found.buckets[i]])) },
    goodput: bounds ? goodput(found, bounds) : null,
    notes: store.notes,
    partial: partial(store),
    jobs: store.jobs.count,
    waits: Array.from({ length: store.requests.count }, (_, request) => waitOf(store, request)),
    comparison: second ? await comparisonOf(store, second) : null,
  };
}

function stepAt(store: StoreInside, row: number): unknown {
  const judged = verdict(store, row);
  const at = store.steps.outcome[row];
  const main = at < 0 ? -1 : store.outcomes.mainReason[at];
  return {
    ...judged,
    step: store.steps.number[row],
    tokens: known(store.steps.tokenSum, row),
    mainReason: main < 0 ? null : store.reasonNames[main],
  };
}

function waitOf(store: StoreInside, request: number): unknown {
  const { parts, spans, ...rest } = waitingSplit(store, request);
  return {
    ...rest,
    id: store.requests.ids[request],
    seen: store.requests.firstRow[request] >= 0 || store.requests.timesRecorded[request] > 0,
    parts: parts.map(({ reason, place, us, meaning }) => ({ reason, place, us, meaning })),
    spans: spans.map(({ state, reason, place, startUs, endUs }) => ({ state, reason, place, startUs, endUs })),
  };
}

async function comparisonOf(a: StoreInside, b: StoreInside): Promise<unknown> {
  const { parting, decision, figures, buckets, jobs } = await compare(a, b);
  return { parting, decision, figures, buckets, jobs };
}

for await (const line of createInterface({ input: process.stdin })) {
  let told: unknown;
  try {
    told = await answer(JSON.parse(line) as Question);
  } catch (error) {
    told = { failed: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
  process.stdout.write(`${JSON.stringify(told)}\n`);
}
