/** What the shortened words of the timeline stand for: said under the pointer, and listed in the help. */

/** The words of the badge of counts. */
export const COUNT_MEANINGS: Readonly<Record<string, string>> = {
  run: "Requests that were running before the step.",
  new: "Requests that the step admitted for the first time.",
  res: "Requests that the step resumed after a preemption.",
  pre: "Requests that the step preempted: they lost their blocks.",
  "skip-run": "Running requests that got no tokens in this step.",
  wait: "Waiting requests that were not admitted.",
};

/** The other badges of a step. */
export const BADGE_MEANINGS = {
  tokens: "Tokens scheduled, of the step's budget.",
  pinned: "Jobs whose blocks are kept.",
  cached: "Prefix-cached blocks of all requests in the queues.",
  recomputed: "Tokens computed once more after a preemption.",
  vram: "KV blocks on the GPU: available, used, pinned, active.",
  dram: "Blocks of the CPU offload tier.",
} as const;

/** As it stands on the page, and what it says. */
export const GLOSSARY: readonly (readonly [string, string])[] = [
  ...Object.entries(COUNT_MEANINGS),
  ["tok:221/2048", BADGE_MEANINGS.tokens],
  ["cached:132b", BADGE_MEANINGS.cached],
  ["recomputed:64t", BADGE_MEANINGS.recomputed],
  ["pin:2", BADGE_MEANINGS.pinned],
  ["VRAM: ava …", BADGE_MEANINGS.vram],
  ["DRAM: ava …", BADGE_MEANINGS.dram],
  ["132b, 64t", "132 blocks, 64 tokens."],
  ["j0018, t3", "Job chat_0018, its turn 3: the request chat_0018_t3. The pointer shows the whole id."],
  ["(p1), (5)", "First step of its prefill, fifth step of its decode."],
  ["[14, fwd:1t]", "It has 14 blocks; the step computes 1 token of it."],
  ["90t left", "Tokens of its prompt not computed before the step."],
  ["hit:11/30(37%)", "11 of its prompt's 30 blocks were found in the prefix cache."],
  ["prefill:65b", "Blocks that its prompt needs besides those found in the prefix cache."],
  ["effectiveFree", "Blocks free once those that run have taken what they need for the step."],
  ["minNeed", "Blocks that the smallest waiting request needs."],
];
