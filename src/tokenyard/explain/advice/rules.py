"""Every rule of advice, in one table."""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.explain.advice.evidence import (
    compute,
    evicted_turns,
    full_sequence,
    held_by,
    long_prefills,
    memory,
    no_prefix_cache,
    order,
    preemptions,
    seats,
    token_budget,
    watermark,
    whole_prompts,
)
from tokenyard.explain.advice.rule import Finding, Rule
from tokenyard.explain.advice.symptoms import Symptoms

__all__ = ["RULES", "advise"]


RULES: tuple[Rule, ...] = (
    Rule(
        name="seats",
        symptom="requests wait while memory is free",
        diagnosis="as many requests run as may run",
        setting="max_num_seqs",
        direction="up",
        price="more requests share each step: time per token rises, and memory fills sooner",
        find=seats,
    ),
    Rule(
        name="token-budget",
        symptom="many requests wait; batches are full of prefill",
        diagnosis="a step may not compute enough tokens",
        setting="max_num_batched_tokens",
        direction="up",
        price="each step takes longer, so those who decode wait longer for their next token; more activation memory",
        find=token_budget,
    ),
    Rule(
        name="compute",
        symptom="many requests wait; steps with prefill take long",
        diagnosis="prefill keeps the GPU busy, and a larger max_num_batched_tokens would only make steps longer",
        setting="tensor_parallel_size",
        direction="up",
        price="more GPUs or engines; computing less is cheaper: see to prefix hits, keep KV in CPU memory",
        find=compute,
    ),
    Rule(
        name="whole-prompts",
        symptom="requests wait behind a long prompt",
        diagnosis="chunked prefill is off, so the prompt waits for a step with room for all of it",
        setting="enable_chunked_prefill",
        direction="on",
        price="a long prompt is spread over several steps",
        find=whole_prompts,
    ),
    Rule(
        name="memory",
        symptom="requests wait for KV blocks",
        diagnosis="the KV cache is too small for this load",
        setting="gpu_memory_utilization",
        direction="up",
        price="less head-room for activations; else more GPUs (tensor_parallel_size) or a smaller KV dtype",
        find=memory,
    ),
    Rule(
        name="order",
        symptom="requests wait though smaller ones would fit",
        diagnosis="a large request at the head of the queue holds back the small ones behind it",
        setting="scheduling_policy",
        direction="choose",
        price="a policy that passes over the head, such as bypass, makes the large request wait longer",
        find=order,
    ),
    Rule(
        name="full-sequence",
        symptom="long prompts wait while memory is free",
        diagnosis="a request is admitted only when all of it fits, though its next chunk would",
        setting="scheduler_reserve_full_isl",
        direction="off",
        price="admitted earlier, more requests are preempted later",
        find=full_sequence,
    ),
    Rule(
        name="watermark",
        symptom="requests wait though they would fit",
        diagnosis="the watermark keeps blocks free",
        setting="watermark",
        direction="down",
        price="running requests find fewer free blocks to grow into: more preemptions",
        find=watermark,
    ),
    Rule(
        name="preemptions",
        symptom="work is thrown away and done again",
        diagnosis="more requests are admitted than the KV cache can carry to their end",
        setting="max_num_seqs",
        direction="down",
        price="fewer requests run at once; more KV blocks cure it without that",
        find=preemptions,
    ),
    Rule(
        name="long-prefills",
        symptom="high p99 of the time per output token",
        diagnosis="large prefills hold up those who decode",
        setting="long_prefill_token_threshold",
        direction="set",
        price="long prompts take more steps to their first token; else lower max_num_batched_tokens",
        find=long_prefills,
    ),
    Rule(
        name="no-prefix-cache",
        symptom="turns of a conversation compute their history again",
        diagnosis="prefix caching is off",
        setting="enable_prefix_caching",
        direction="on",
        price="hashing of full blocks",
        find=no_prefix_cache,
    ),
    Rule(
        name="evicted-turns",
        symptom="few prefix hits in conversations",
        diagnosis="a turn's blocks are evicted before the next turn comes",
        setting="scheduling_policy",
        direction="choose",
        price="a policy that keeps finished turns (continuum-share) leaves less memory for others; else more KV blocks",
        find=evicted_turns,
    ),
    Rule(
        name="lora-slots",
        symptom="requests wait for their LoRA adapter",
        diagnosis="more adapters are asked for than a step may hold",
        setting="max_loras",
        direction="up",
        price="memory for each adapter",
        find=held_by("lora_slots", "passed over requests because all LoRA slots were taken"),
    ),
    Rule(
        name="encoder-budget",
        symptom="requests with images or audio wait",
        diagnosis="a step may not run enough encoder inputs",
        setting="max_num_encoder_input_tokens",
        direction="up",
        price="longer steps, more activation memory",
        find=held_by("encoder_budget", "spent the encoder's budget"),
    ),
    Rule(
        name="remote-kv",
        symptom="requests wait for KV from elsewhere",
        diagnosis="loads take longer than computing would leave time for",
        setting="kv_connector",
        direction="choose",
        price="look at the connector's bandwidth, or load less",
        find=held_by("waiting_remote_kv", "passed over requests whose KV was on its way"),
    ),
    Rule(
        name="grammars",
        symptom="requests with structured output wait",
        diagnosis="grammars are compiled while requests wait",
        setting="structured_outputs_config",
        direction="choose",
        price="compile ahead, reuse schemas, or choose another backend",
        find=held_by("waiting_grammar", "passed over requests whose grammar was being compiled"),
    ),
)


def advise(symptoms: Symptoms, rules: Sequence[Rule] | None = None) -> list[Finding]:
    """What ``rules`` (all of them) advise, most time lost first; those that cost no waiting time last."""
    found = [rule.apply(symptoms) for rule in (RULES if rules is None else rules)]
    return sorted((each for each in found if each is not None), key=lambda each: -(each.lost_s or 0.0))
