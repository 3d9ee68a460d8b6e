/** Every rule of advice: the table of src/tokenyard/explain/advice/rules.py, word for word. */

import {
  compute,
  type Evidence,
  evictedTurns,
  fullSequence,
  heldBy,
  longPrefills,
  memory,
  noPrefixCache,
  order,
  preemptions,
  seats,
  tokenBudget,
  watermark,
  wholePrompts,
} from "./evidence";
import { type Symptoms, settingOf } from "./symptoms";

export type Direction = "up" | "down" | "on" | "off" | "set" | "choose";

export interface Rule {
  rule: string;
  symptom: string;
  diagnosis: string;
  setting: string;
  direction: Direction;
  /** What the change costs. */
  price: string;
  /** Filter text for the steps that show it; empty where no step stands out. */
  steps: string;
  find(symptoms: Symptoms): Evidence | null;
}

/** One piece of advice. */
export interface Finding extends Omit<Rule, "find"> {
  /** The setting's value in this run; null if the trace does not tell. */
  now: unknown;
  /** What in this trace shows it. */
  evidence: string;
  /** Request-seconds lost to it; null if that is not what it costs. */
  lostSeconds: number | null;
}

export const RULES: readonly Rule[] = [
  {
    rule: "seats",
    symptom: "requests wait while memory is free",
    diagnosis: "as many requests run as may run",
    setting: "max_num_seqs",
    direction: "up",
    price: "more requests share each step: time per token rises, and memory fills sooner",
    steps: "reason:max_num_seqs",
    find: seats,
  },
  {
    rule: "token-budget",
    symptom: "many requests wait; batches are full of prefill",
    diagnosis: "a step may not compute enough tokens",
    setting: "max_num_batched_tokens",
    direction: "up",
    price: "each step takes longer, so those who decode wait longer for their next token; more activation memory",
    steps: "reason:token_budget",
    find: tokenBudget,
  },
  {
    rule: "compute",
    symptom: "many requests wait; steps with prefill take long",
    diagnosis: "prefill keeps the GPU busy, and a larger max_num_batched_tokens would only make steps longer",
    setting: "tensor_parallel_size",
    direction: "up",
    price: "more GPUs or engines; computing less is cheaper: see to prefix hits, keep KV in CPU memory",
    steps: "reason:token_budget",
    find: compute,
  },
  {
    rule: "whole-prompts",
    symptom: "requests wait behind a long prompt",
    diagnosis: "chunked prefill is off, so the prompt waits for a step with room for all of it",
    setting: "enable_chunked_prefill",
    direction: "on",
    price: "a long prompt is spread over several steps",
    steps: "reason:prefill_exceeds_budget",
    find: wholePrompts,
  },
  {
    rule: "memory",
    symptom: "requests wait for KV blocks",
    diagnosis: "the KV cache is too small for this load",
    setting: "gpu_memory_utilization",
    direction: "up",
    price: "less head-room for activations; else more GPUs (tensor_parallel_size) or a smaller KV dtype",
    steps: "reason:kv_",
    find: memory,
  },
  {
    rule: "order",
    symptom: "requests wait though smaller ones would fit",
    diagnosis: "a large request at the head of the queue holds back the small ones behind it",
    setting: "scheduling_policy",
    direction: "choose",
    price: "a policy that passes over the head, such as bypass, makes the large request wait longer",
    steps: "reason:kv_",
    find: order,
  },
  {
    rule: "full-sequence",
    symptom: "long prompts wait while memory is free",
    diagnosis: "a request is admitted only when all of it fits, though its next chunk would",
    setting: "scheduler_reserve_full_isl",
    direction: "off",
    price: "admitted earlier, more requests are preempted later",
    steps: "reason:kv_full_sequence",
    find: fullSequence,
  },
  {
    rule: "watermark",
    symptom: "requests wait though they would fit",
    diagnosis: "the watermark keeps blocks free",
    setting: "watermark",
    direction: "down",
    price: "running requests find fewer free blocks to grow into: more preemptions",
    steps: "reason:kv_watermark",
    find: watermark,
  },
  {
    rule: "preemptions",
    symptom: "work is thrown away and done again",
    diagnosis: "more requests are admitted than the KV cache can carry to their end",
    setting: "max_num_seqs",
    direction: "down",
    price: "fewer requests run at once; more KV blocks cure it without that",
    steps: "preempted:1..",
    find: preemptions,
  },
  {
    rule: "long-prefills",
    symptom: "high p99 of the time per output token",
    diagnosis: "large prefills hold up those who decode",
    setting: "long_prefill_token_threshold",
    direction: "set",
    price: "long prompts take more steps to their first token; else lower max_num_batched_tokens",
    steps: "budget:25..",
    find: longPrefills,
  },
  {
    rule: "no-prefix-cache",
    symptom: "turns of a conversation compute their history again",
    diagnosis: "prefix caching is off",
    setting: "enable_prefix_caching",
    direction: "on",
    price: "hashing of full blocks",
    steps: "",
    find: noPrefixCache,
  },
  {
    rule: "evicted-turns",
    symptom: "few prefix hits in conversations",
    diagnosis: "a turn's blocks are evicted before the next turn comes",
    setting: "scheduling_policy",
    direction: "choose",
    price: "a policy that keeps finished turns (continuum-share) leaves less memory for others; else more KV blocks",
    steps: "hit:0..60",
    find: evictedTurns,
  },
  {
    rule: "lora-slots",
    symptom: "requests wait for their LoRA adapter",
    diagnosis: "more adapters are asked for than a step may hold",
    setting: "max_loras",
    direction: "up",
    price: "memory for each adapter",
    steps: "reason:lora_slots",
    find: heldBy("lora_slots", "passed over requests because all LoRA slots were taken"),
  },
  {
    rule: "encoder-budget",
    symptom: "requests with images or audio wait",
    diagnosis: "a step may not run enough encoder inputs",
    setting: "max_num_encoder_input_tokens",
    direction: "up",
    price: "longer steps, more activation memory",
    steps: "reason:encoder_budget",
    find: heldBy("encoder_budget", "spent the encoder's budget"),
  },
  {
    rule: "remote-kv",
    symptom: "requests wait for KV from elsewhere",
    diagnosis: "loads take longer than computing would leave time for",
    setting: "kv_connector",
    direction: "choose",
    price: "look at the connector's bandwidth, or load less",
    steps: "reason:waiting_remote_kv",
    find: heldBy("waiting_remote_kv", "passed over requests whose KV was on its way"),
  },
  {
    rule: "grammars",
    symptom: "requests with structured output wait",
    diagnosis: "grammars are compiled while requests wait",
    setting: "structured_outputs_config",
    direction: "choose",
    price: "compile ahead, reuse schemas, or choose another backend",
    steps: "reason:waiting_grammar",
    find: heldBy("waiting_grammar", "passed over requests whose grammar was being compiled"),
  },
];

/** What the rules advise, most time lost first; those that cost no waiting time last. */
export function advise(symptoms: Symptoms): Finding[] {
  const findings = RULES.flatMap(({ find, ...rule }): Finding[] => {
    const evidence = find(symptoms);
    if (!evidence) return [];
    return [
      { ...rule, now: settingOf(symptoms, rule.setting), evidence: evidence.text, lostSeconds: evidence.lostSeconds },
    ];
  });
  return findings.sort((a, b) => (b.lostSeconds ?? 0) - (a.lostSeconds ?? 0));
}
