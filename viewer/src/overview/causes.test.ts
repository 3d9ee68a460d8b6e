/** In which order advice stands. */

import { expect, test } from "vitest";
import type { Finding } from "../advice/rules";
import { ranked } from "./causes";

function finding(rule: string, reason: string, lostSeconds: number | null): Finding {
  return { rule, reasons: [reason], lostSeconds } as unknown as Finding;
}

test("most time lost first, and a policy that vLLM has not after what mends it", () => {
  const order = finding("order", "kv_blocks", 900);
  const memory = finding("memory", "kv_blocks", 800);
  const preemptions = finding("preemptions", "preempted_this_step", 70);
  const seats = finding("seats", "max_num_seqs", 400);
  const prefills = finding("long-prefills", "", null);
  const shown = ranked([prefills, order, preemptions, seats, memory], "kv_blocks");
  expect(shown.map(({ rule }) => rule)).toEqual(["memory", "seats", "preemptions", "long-prefills", "order"]);
  expect(ranked([order, memory, seats], "max_num_seqs").map(({ rule }) => rule)).toEqual(["seats", "memory", "order"]);
});

test("what a missed bound wants before what requests waited for", () => {
  const seats = finding("seats", "max_num_seqs", 400);
  const steps = finding("prefill-in-steps", "", null);
  expect(ranked([seats, steps], "max_num_seqs").map(({ rule }) => rule)).toEqual(["prefill-in-steps", "seats"]);
});
