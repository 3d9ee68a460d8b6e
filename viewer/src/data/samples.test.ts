/** Every step of every sample and the report on each, against the vectors that the Python implementation shares. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { classify, type StepFacts } from "./classify";
import { known } from "./columns";
import { BUCKETS, type Bucket, type StepReason } from "./model/reasons";
import type { Spread } from "./model/statistics";
import { storeFrom } from "./sampleStore";
import { statistics } from "./statistics";
import type { StoreInside } from "./store";
import { verdict } from "./verdict";

const folder = resolve(__dirname, "../../../tests/unit/explain");

function vectorsOf<T>(file: string): T[] {
  return (JSON.parse(readFileSync(resolve(folder, file), "utf-8")) as { vectors: T[] }).vectors;
}

interface Latency {
  censored?: string[];
  mean: number | null;
  p50: number | null;
  p90?: number | null;
  p95?: number | null;
  p99?: number | null;
}

interface Report {
  steps: number;
  buckets: Record<string, number>;
  reasons: Record<string, number>;
  recorded_reasons: Record<
    string,
    { steps: number; requests: number; seconds: number; kv: Record<string, number | null> | null }
  >;
  unseen_s: number | null;
  disagreements: { steps_compared: number; steps_disagreeing: number };
  prefix_hit_rate: { local: number | null; external: number | null };
  prefix_lookups: number;
  preemptions: number | null;
  recomputed_tokens: number | null;
  token_budget_use: Latency;
  running: Latency;
  waiting: Latency;
  peak_kv_use: number | null;
  queue_ms: Latency;
  ttft_ms: Latency;
  tpot_ms: Latency;
  e2e_ms: Latency;
  itl_ms: Latency;
  outcomes: Record<string, number>;
  attempts: { sent: number; again: number; lost_tokens: number } | null;
  reading: Record<string, number | Record<string, number>>;
  header: { jobs: number; max_running: number | null; seconds: number | null; steps: number };
}

interface Sample {
  name: string;
  lines: string[];
  requests: string[];
  expect: { steps: [number, Bucket, StepReason | null, ...(number | null)[]][]; report: Report };
}

function close(found: number | null | undefined, wanted: number | null, what: string): void {
  if (wanted === null || wanted === undefined) expect(found ?? null, what).toBeNull();
  else expect(found, what).toBeCloseTo(wanted, 9);
}

function spreads(found: Spread | null, wanted: Latency, scale: number, what: string): void {
  for (const name of ["mean", "p50", "p90", "p95", "p99"] as const) {
    const value = wanted[name];
    if (value !== undefined) close(found ? found[name] * scale : null, value, `${what} ${name}`);
  }
  expect([...(found?.atLeast ?? [])], what).toEqual(wanted.mean === null ? [] : (wanted.censored ?? []));
}

for (const { name, lines, requests, expect: wanted } of vectorsOf<Sample>("sample_vectors.json")) {
  describe(`sample: ${name}`, () => {
    let store: StoreInside;
    beforeAll(async () => {
      store = await storeFrom(lines, requests);
    });

    it(`every step`, () => {
      const found = Array.from({ length: store.rows }, (_, row) => {
        const judged = verdict(store, row);
        return [
          store.steps.number[row],
          judged.bucket,
          judged.reason,
          judged.unadmitted,
          judged.effectiveFree,
          judged.minNeed,
          known(store.steps.tokenSum, row),
          known(store.steps.runningConsumed, row),
        ];
      });
      expect(found).toEqual(wanted.steps);
    });

    it(`the report`, async () => {
      const { report } = wanted;
      const found = await statistics(store, { first: 0, last: store.rows - 1 });
      expect(Object.fromEntries(BUCKETS.map((bucket, i) => [bucket, found.buckets[i]]))).toEqual(report.buckets);
      expect(found.reasons).toEqual(Object.values(report.reasons));
      expect(found.recorded.map(({ reason }) => reason)).toEqual(Object.keys(report.recorded_reasons));
      for (const totals of found.recorded) {
        const told = report.recorded_reasons[totals.reason];
        expect([totals.steps, totals.requests]).toEqual([told.steps, told.requests]);
        close(totals.seconds, told.seconds, totals.reason);
        close(totals.kv?.needed, told.kv?.["needed"] ?? null, "needed");
        close(totals.kv?.smallestNeed, told.kv?.["smallest_need"] ?? null, "smallest need");
        close(totals.kv?.smallerWouldFitSteps, told.kv?.["smaller_would_fit_steps"] ?? null, "would fit");
      }
      if (store.livesRecorded) close(found.unseenSeconds, report.unseen_s, "unseen");
      expect(found.agreement?.compared ?? 0).toBe(report.disagreements.steps_compared);
      expect(found.agreement?.disagreeing ?? 0).toBe(report.disagreements.steps_disagreeing);
      const { prefixHits } = found;
      expect(prefixHits.lookups).toBe(report.prefix_lookups);
      if (prefixHits.promptTokens) {
        close(prefixHits.localTokens / prefixHits.promptTokens, report.prefix_hit_rate.local, "local hits");
      }
      expect(found.preemptions).toBe(report.preemptions);
      expect(found.recomputedTokens ?? 0).toBe(report.recomputed_tokens ?? 0);
      close(found.tokenBudget.mean, report.token_budget_use.mean, "budget");
      spreads(found.running, report.running, 1, "running");
      spreads(found.waiting, report.waiting, 1, "waiting");
      close(found.peakKvUse, report.peak_kv_use, "peak");
      if (store.livesRecorded) {
        spreads(found.queueSeconds, report.queue_ms, 1e3, "queue");
        spreads(found.ttftSeconds, report.ttft_ms, 1e3, "ttft");
        spreads(found.tpotSeconds, report.tpot_ms, 1e3, "tpot");
        spreads(found.e2eSeconds, report.e2e_ms, 1e3, "e2e");
        spreads(found.itlSeconds, report.itl_ms, 1e3, "itl");
        expect(found.outcomes).toEqual(report.outcomes);
        const tried = found.attempts && { ...found.attempts, lost_tokens: found.attempts.lostTokens };
        expect(tried).toEqual(report.attempts && { ...report.attempts, lostTokens: report.attempts.lost_tokens });
      }
    });

    it(`what could not be read`, () => {
      const { reading } = wanted.report;
      const { notes } = store;
      expect(notes.badLines).toBe(reading["bad_lines"]);
      expect(notes.unknownEvents).toEqual(reading["unknown_events"]);
      expect(notes.droppedFields).toEqual(reading["dropped_fields"]);
      expect(notes.duplicateRecords).toBe(reading["duplicate_records"]);
      expect(notes.lateRecords).toBe(reading["late_records"]);
      expect(store.jobs.count).toBe(wanted.report.header.jobs);
    });
  });
}

interface ClassifierVector {
  name: string;
  snapshot?: Record<string, unknown>;
  decision?: Record<string, unknown>;
  requests?: Record<string, unknown>[];
  block_size?: number;
  expect: {
    unadmitted: number | null;
    min_need: number | null;
    running_consumed: number | null;
    effective_free: number | null;
    reason: StepReason | null;
    bucket: Bucket;
  };
}

describe("the classifier", () => {
  for (const vector of vectorsOf<ClassifierVector>("classifier_vectors.json")) {
    it(vector.name, async () => {
      const start = vector.block_size ? [{ event: "trace_start", block_size: vector.block_size }] : [];
      const records = [...start, vector.snapshot, vector.decision].filter(
        (record) => record !== undefined && record !== null,
      );
      const store = await storeFrom(
        records.map((record) => JSON.stringify(record)),
        (vector.requests ?? []).map((record) => JSON.stringify(record)),
      );
      const judged = verdict(store, 0);
      const { expect: wanted } = vector;
      expect({
        unadmitted: judged.unadmitted,
        min_need: judged.minNeed,
        running_consumed: known(store.steps.runningConsumed, 0),
        effective_free: judged.effectiveFree,
        reason: judged.reason,
        bucket: judged.bucket,
      }).toEqual(wanted);
    });
  }

  it("lets no check match whose numbers are missing", () => {
    const nothing: StepFacts = {
      ...{ freeBlocks: null, numRunning: null, numWaiting: 3, numNew: 0, numResumed: 0 },
      ...{ maxRunning: null, tokenSum: null, tokenBudget: null, runningConsumed: null, minNeed: null },
    };
    expect(classify(nothing)).toEqual({ bucket: "unknown", reason: "unknown", unadmitted: 3, effectiveFree: null });
  });
});
