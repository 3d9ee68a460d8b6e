/** The rules of src/tokenyard/explain/advice/rules.toml. Made by scripts/generate_vocabulary.py: change it there, and run `make viewer`. */

import type { RuleBook } from "../advice/rule";

export const RULE_BOOK: RuleBook = {
  "engine": [
    "mixed_is_slow"
  ],
  "symptoms": {
    "large_prefill": 0.25,
    "settings": {
      "scheduler": [
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "scheduler_reserve_full_isl",
        "policy",
        "max_loras",
        "max_num_encoder_input_tokens"
      ],
      "cache": [
        "enable_prefix_caching",
        "watermark"
      ],
      "hardware": [
        "gpu_memory_utilization",
        "num_gpu_blocks_override",
        "kv_cache_memory_bytes"
      ],
      "engine": [
        "gpu_memory_utilization",
        "num_gpu_blocks_override",
        "kv_cache_memory_bytes"
      ],
      "deployment": [
        "tensor_parallel_size",
        "memory_num_gpu_blocks"
      ]
    }
  },
  "ratios": {
    "reason.share": [
      "reason.seconds",
      "request_seconds"
    ],
    "reason.fits_share": [
      "reason.kv.smaller_would_fit_steps",
      "reason.steps"
    ],
    "recomputed_share": [
      "recomputed_tokens",
      "scheduled_tokens"
    ],
    "mixed_ratio": [
      "mixed_ms",
      "decode_ms"
    ]
  },
  "conditions": {
    "noticeable": [
      [
        {
          "value": "reason.steps",
          "at_least": 10.0
        },
        {
          "value": "reason.seconds",
          "at_least": 0.02,
          "times": "request_seconds"
        }
      ]
    ],
    "preempts": [
      [
        {
          "value": "preemptions",
          "at_least": 10.0
        },
        {
          "value": "preemptions",
          "at_least": 0.05,
          "times": "requests"
        }
      ],
      [
        {
          "value": "scheduled_tokens",
          "above": 0.0
        },
        {
          "value": "recomputed_tokens",
          "at_least": 0.05,
          "times": "scheduled_tokens"
        }
      ]
    ],
    "cheap_preemptions": [
      [
        {
          "value": "recomputed_tokens",
          "below": 0.02,
          "times": "scheduled_tokens"
        },
        {
          "value": "lost.max_num_seqs",
          "above": 0.0
        },
        {
          "value": "lost.max_num_seqs",
          "at_least": 10.0,
          "times": "lost.preempted_this_step"
        }
      ]
    ],
    "costly_preemptions": [
      [
        "preempts",
        "not cheap_preemptions"
      ]
    ],
    "recomputes": [
      [
        {
          "value": "recomputed_tokens",
          "above": 0.0
        }
      ]
    ],
    "mixed_is_slow": [
      [
        {
          "value": "mixed_steps",
          "at_least": 10.0
        },
        {
          "value": "mixed_ms",
          "above": 0.0
        },
        {
          "value": "decode_ms",
          "above": 0.0
        },
        {
          "value": "mixed_ms",
          "at_least": 3.0,
          "times": "decode_ms"
        }
      ]
    ],
    "room": [
      [
        {
          "value": "reason.kv_free",
          "at_least": 0.2
        }
      ]
    ],
    "no_room_for_more": [
      [
        {
          "value": "reason.kv_free",
          "below": 0.2
        }
      ]
    ],
    "blocks_are_given": [
      [
        {
          "value": "setting.num_gpu_blocks_override",
          "above": 0.0
        }
      ]
    ],
    "bytes_are_given": [
      [
        {
          "value": "setting.kv_cache_memory_bytes",
          "above": 0.0
        }
      ]
    ],
    "memory_is_set": [
      [
        "blocks_are_given"
      ],
      [
        "bytes_are_given"
      ],
      [
        {
          "value": "setting.gpu_memory_utilization",
          "at_least": 0.98
        }
      ]
    ],
    "conversations": [
      [
        {
          "value": "jobs",
          "above": 0.0
        },
        {
          "value": "requests",
          "at_least": 2.0,
          "times": "jobs"
        }
      ]
    ],
    "guessed": [
      [
        {
          "value": "guessed",
          "is": true
        }
      ]
    ],
    "token_is_late": [
      [
        {
          "value": "token_bound_ms",
          "above": 0.0
        }
      ]
    ],
    "first_is_late": [
      [
        {
          "value": "first_bound_ms",
          "above": 0.0
        }
      ]
    ],
    "wants_seats": [
      [
        {
          "value": "lost.max_num_seqs",
          "at_least": 0.02,
          "times": "request_seconds"
        }
      ]
    ],
    "wants_tokens": [
      [
        {
          "value": "lost.token_budget",
          "at_least": 0.02,
          "times": "request_seconds"
        }
      ]
    ],
    "decode_is_too_slow": [
      [
        "token_is_late",
        {
          "value": "decode_steps",
          "at_least": 10.0
        },
        {
          "value": "decode_token_ms",
          "at_least": 1.0,
          "times": "token_bound_ms"
        }
      ],
      [
        "token_is_late",
        {
          "value": "decode_steps",
          "at_least": 10.0
        },
        "fewer_are_in_bound",
        "not prefill_takes_time"
      ]
    ],
    "fewer_are_in_bound": [
      [
        {
          "value": "batch_in_bound",
          "at_least": 1.0
        },
        {
          "value": "batch_in_bound",
          "below": 1.0,
          "times": "peak_running"
        }
      ]
    ],
    "prefill_takes_time": [
      [
        {
          "value": "prefill_share",
          "at_least": 0.05
        }
      ]
    ],
    "fewer_would_do": [
      [
        "decode_is_too_slow",
        "fewer_are_in_bound",
        "not first_is_late",
        "not wants_seats"
      ]
    ],
    "prefill_is_in_the_way": [
      [
        "token_is_late",
        "not decode_is_too_slow",
        {
          "value": "decode_steps",
          "at_least": 10.0
        },
        {
          "value": "prefill_steps",
          "at_least": 10.0
        },
        {
          "value": "prefill_token_ms",
          "at_least": 1.0,
          "times": "token_bound_ms"
        },
        "prefill_takes_time"
      ]
    ],
    "smaller_steps_would_do": [
      [
        "prefill_is_in_the_way",
        "not wants_tokens",
        {
          "value": "tokens_in_bound",
          "at_least": 16.0
        },
        {
          "value": "mean_token_ms",
          "below": 1.0,
          "times": "token_bound_ms"
        }
      ]
    ],
    "seats_allow_it": [
      [
        {
          "value": "tokens_in_bound",
          "at_least": 1.0,
          "times": "max_running"
        }
      ]
    ],
    "prompt_is_slow": [
      [
        "first_is_late",
        {
          "value": "prefill_ms",
          "above": 0.5,
          "times": "ttft_ms"
        }
      ]
    ],
    "steps_are_short": [
      [
        {
          "value": "prefill_steps",
          "at_least": 10.0
        },
        {
          "value": "decode_steps",
          "at_least": 10.0
        },
        {
          "value": "prefill_token_ms",
          "below": 1.5,
          "times": "decode_token_ms"
        }
      ]
    ],
    "chunks_are_small": [
      [
        "steps_are_short",
        {
          "value": "prefill_budget_use",
          "at_least": 0.9
        }
      ]
    ]
  },
  "frame": {
    "before": [
      "{reason.steps:count} of {steps:count} steps ",
      {
        "text": "seem to have ",
        "when": [
          "guessed"
        ]
      }
    ],
    "after": [
      "; requests lost {reason.seconds:duration} to it, {reason.share:percent} of their time",
      "."
    ],
    "whole": [
      {
        "text": "A request",
        "when": [
          {
            "value": "whole_bound_ms",
            "above": 0.0
          }
        ]
      },
      " of class {whole_class:name}",
      " may take {whole_bound_ms:tenth} ms",
      " and takes {whole_time_ms:tenth} ms. To mend that: "
    ],
    "token": [
      "A token",
      " of class {token_class:name}",
      " may take {token_bound_ms:tenth} ms and takes {token_time_ms:tenth} ms."
    ],
    "first": [
      "The first token",
      " of class {first_class:name}",
      " may take {first_bound_ms:tenth} ms and takes {first_time_ms:tenth} ms."
    ]
  },
  "rules": [
    {
      "name": "large-batch",
      "symptom": "the time per token misses its bound, and steps take longer the more requests run",
      "diagnosis": "more requests share a step than it can serve in that time",
      "setting": "max_num_seqs",
      "direction": "down",
      "price": "where more requests come, they wait for their first token instead",
      "vllm": true,
      "steps": "",
      "reasons": [],
      "when": [
        "fewer_would_do"
      ],
      "did": [],
      "evidence": [
        " {decode_steps:count} steps without prefill took {decode_token_ms:tenth} ms for a token, with {decode_running:tenth} requests on average and {peak_running:count} at most",
        "; by the line through their durations they stay within the bound with up to {batch_in_bound:floor} requests, which are a first value to try."
      ],
      "then": [],
      "target": {
        "value": "batch_in_bound",
        "times": 1.0
      },
      "of_bound": "token"
    },
    {
      "name": "slow-steps",
      "symptom": "the time per token misses its bound, and steps without prefill take longer than that",
      "diagnosis": "the GPU is too slow for this load",
      "setting": "tensor_parallel_size",
      "direction": "up",
      "price": "more GPUs or engines, or faster ones; weights and KV in fewer bits (quantization, kv_cache_dtype fp8) make steps shorter, too",
      "vllm": true,
      "steps": "",
      "reasons": [],
      "when": [
        "decode_is_too_slow",
        "not fewer_would_do"
      ],
      "did": [],
      "evidence": [
        " {decode_steps:count} steps without prefill took {decode_token_ms:tenth} ms for a token, with {decode_running:tenth} requests on average.",
        {
          "text": " With fewer requests in a step the others would wait longer than they may.",
          "when": [
            "fewer_are_in_bound"
          ]
        },
        {
          "text": " Fewer requests in a step would not do: what each step takes anyway is {decode_base_ms:tenth} ms for a token.",
          "when": [
            "not fewer_are_in_bound"
          ]
        },
        {
          "text": " Twice as many GPUs are a first value to try.",
          "when": [
            {
              "value": "setting.tensor_parallel_size",
              "above": 0.0
            }
          ]
        }
      ],
      "then": [],
      "target": {
        "value": "setting.tensor_parallel_size",
        "times": 2.0
      },
      "of_bound": "token"
    },
    {
      "name": "prefill-in-steps",
      "symptom": "the time per token misses its bound, because prefill makes steps longer",
      "diagnosis": "a step computes more tokens of prompts than it can in the time that a token may take",
      "setting": "max_num_batched_tokens",
      "direction": "down",
      "price": "a long prompt takes more steps to its first token",
      "vllm": true,
      "steps": "budget:1..",
      "reasons": [],
      "when": [
        "smaller_steps_would_do",
        "seats_allow_it"
      ],
      "did": [],
      "evidence": [
        " {prefill_steps:count} of {steps:count} steps carried prefill beside running requests and took {prefill_token_ms:tenth} ms for a token, against {decode_token_ms:tenth} ms without",
        ": {prefill_share:percent} of the time of running requests.",
        " By these durations a step stays within the bound with up to {tokens_in_bound:floor} tokens."
      ],
      "then": [],
      "target": {
        "value": "tokens_in_bound",
        "times": 1.0
      },
      "of_bound": "token"
    },
    {
      "name": "prefill-in-pieces",
      "symptom": "the time per token misses its bound, because prefill makes steps longer",
      "diagnosis": "a step computes more tokens of a prompt than it can in the time that a token may take",
      "setting": "long_prefill_token_threshold",
      "direction": "set",
      "price": "a long prompt takes more steps to its first token; several prompts may still share a step, which only a lower max_num_batched_tokens with as low a max_num_seqs prevents",
      "vllm": true,
      "steps": "budget:1..",
      "reasons": [],
      "when": [
        "smaller_steps_would_do",
        "not seats_allow_it"
      ],
      "did": [],
      "evidence": [
        " {prefill_steps:count} of {steps:count} steps carried prefill beside running requests and took {prefill_token_ms:tenth} ms for a token, against {decode_token_ms:tenth} ms without",
        ": {prefill_share:percent} of the time of running requests.",
        " By these durations a step stays within the bound with up to {tokens_in_bound:floor} tokens, which are a first value to try."
      ],
      "then": [],
      "target": {
        "value": "tokens_in_bound",
        "times": 1.0
      },
      "of_bound": "token"
    },
    {
      "name": "prefill-apart",
      "symptom": "the time per token misses its bound, because prefill makes steps longer",
      "diagnosis": "there is more prefill than fits into steps that are short enough",
      "setting": "kv_transfer_config",
      "direction": "set",
      "price": "engines of their own for prefill, with a connector that brings their KV: `tokenyard split` replays it; else more engines",
      "vllm": true,
      "steps": "budget:1..",
      "reasons": [],
      "when": [
        "prefill_is_in_the_way",
        "not smaller_steps_would_do"
      ],
      "did": [],
      "evidence": [
        " {prefill_steps:count} of {steps:count} steps carried prefill beside running requests and took {prefill_token_ms:tenth} ms for a token, against {decode_token_ms:tenth} ms without",
        ": {prefill_share:percent} of the time of running requests.",
        " Smaller steps would not do: with its share of prefill a token takes {mean_token_ms:tenth} ms on average",
        {
          "text": ", and prompts wait for tokens already",
          "when": [
            "wants_tokens"
          ]
        },
        "."
      ],
      "then": [],
      "of_bound": "token"
    },
    {
      "name": "small-chunks",
      "symptom": "the time to the first token misses its bound, and prompts take many short steps",
      "diagnosis": "a step computes fewer tokens than it could in nearly the same time",
      "setting": "max_num_batched_tokens",
      "direction": "up",
      "price": "more activation memory; steps take a little longer",
      "vllm": true,
      "steps": "budget:90..",
      "reasons": [],
      "when": [
        "prompt_is_slow",
        "chunks_are_small"
      ],
      "did": [],
      "evidence": [
        " Of {ttft_ms:tenth} ms on average, {prefill_ms:tenth} ms lie between the first step of a request and its first token.",
        " Steps with prefill are {prefill_budget_use:percent} full and take {prefill_token_ms:tenth} ms for a token, those without {decode_token_ms:tenth} ms.",
        " Twice as many tokens are a first value to try."
      ],
      "then": [],
      "target": {
        "value": "token_budget",
        "times": 2.0
      },
      "of_bound": "first"
    },
    {
      "name": "slow-prefill",
      "symptom": "the time to the first token misses its bound, though requests hardly wait to be scheduled",
      "diagnosis": "the GPU computes their prompts too slowly",
      "setting": "tensor_parallel_size",
      "direction": "up",
      "price": "more GPUs or engines, or faster ones; what prompts have in common need not be computed again (enable_prefix_caching)",
      "vllm": true,
      "steps": "",
      "reasons": [],
      "when": [
        "prompt_is_slow",
        "not chunks_are_small"
      ],
      "did": [],
      "evidence": [
        " Of {ttft_ms:tenth} ms on average, {prefill_ms:tenth} ms lie between the first step of a request and its first token.",
        {
          "text": " Twice as many GPUs are a first value to try.",
          "when": [
            {
              "value": "setting.tensor_parallel_size",
              "above": 0.0
            }
          ]
        }
      ],
      "then": [],
      "target": {
        "value": "setting.tensor_parallel_size",
        "times": 2.0
      },
      "of_bound": "first"
    },
    {
      "name": "step-in-flight",
      "symptom": "the time to the first token misses its bound, because requests wait for the step that runs when they come",
      "diagnosis": "steps with prefill take long, and a request is seen only when one ends",
      "setting": "max_num_batched_tokens",
      "direction": "down",
      "price": "a long prompt takes more steps to its first token",
      "vllm": true,
      "steps": "budget:1..",
      "reasons": [],
      "when": [
        "first_is_late",
        "not prompt_is_slow",
        "not steps_are_short",
        "not wants_tokens",
        {
          "value": "unseen_ms",
          "at_least": 0.3,
          "times": "ttft_ms"
        }
      ],
      "did": [],
      "evidence": [
        " Of {ttft_ms:tenth} ms on average, requests waited {unseen_ms:tenth} ms for the step that ran when they came.",
        {
          "text": " Half of max_num_batched_tokens is a first value to try.",
          "when": [
            {
              "value": "token_budget",
              "above": 0.0
            }
          ]
        }
      ],
      "then": [],
      "target": {
        "value": "token_budget",
        "times": 0.5
      },
      "of_bound": "first"
    },
    {
      "name": "seats",
      "symptom": "requests wait while memory is free",
      "diagnosis": "as many requests run as may run",
      "setting": "max_num_seqs",
      "direction": "up",
      "price": "more requests share each step: time per token rises, and memory fills sooner",
      "vllm": true,
      "steps": "reason:max_num_seqs",
      "reasons": [
        "max_num_seqs"
      ],
      "when": [
        "noticeable",
        "room",
        "not costly_preemptions",
        "not token_is_late"
      ],
      "did": [
        "stopped at max_num_seqs",
        " = {setting.max_num_seqs:setting}",
        " with {reason.kv_free:percent} of KV free"
      ],
      "evidence": [],
      "then": [
        " At the worst {reason.worst.running:count} ran and {reason.worst.held:count} waited for a seat",
        "; the KV cache has room for about {reason.worst.fits:count} such requests",
        {
          "text": ".",
          "when": [
            {
              "value": "reason.worst.held",
              "above": 0.0
            }
          ]
        }
      ],
      "target": {
        "value": "reason.worst.demand",
        "at_most": "reason.worst.fits",
        "times": 1.0
      }
    },
    {
      "name": "seats-and-memory",
      "symptom": "as many requests run as may run, and they fill the KV cache",
      "diagnosis": "the KV cache has no room for more requests than max_num_seqs allows",
      "setting": "max_num_seqs",
      "direction": "up",
      "price": "it helps only together with more memory for KV (kv_cache_dtype fp8, gpu_memory_utilization, num_gpu_blocks_override, more GPUs): alone, requests would wait for KV blocks or be preempted instead",
      "vllm": true,
      "steps": "reason:max_num_seqs",
      "reasons": [
        "max_num_seqs"
      ],
      "when": [
        "noticeable",
        "no_room_for_more",
        "not costly_preemptions",
        "not token_is_late"
      ],
      "did": [
        "stopped at max_num_seqs",
        " = {setting.max_num_seqs:setting}",
        " with only {reason.kv_free:percent} of KV free"
      ],
      "evidence": [],
      "then": [
        " At the worst {reason.worst.running:count} ran and {reason.worst.held:count} waited for a seat",
        "; all of them would need about {reason.worst.needed_blocks:count} KV blocks, and {reason.worst.total_blocks:count} are there",
        {
          "text": ".",
          "when": [
            {
              "value": "reason.worst.held",
              "above": 0.0
            }
          ]
        },
        {
          "text": " Running requests lost their blocks {preemptions:count} times.",
          "when": [
            {
              "value": "preemptions",
              "above": 0.0
            }
          ]
        }
      ],
      "target": {
        "value": "reason.worst.demand",
        "times": 1.0
      }
    },
    {
      "name": "token-budget",
      "symptom": "many requests wait; batches are full of prefill",
      "diagnosis": "a step may not compute enough tokens",
      "setting": "max_num_batched_tokens",
      "direction": "up",
      "price": "each step takes longer, so those who decode wait longer for their next token; more activation memory",
      "vllm": true,
      "steps": "reason:token_budget",
      "reasons": [
        "token_budget"
      ],
      "when": [
        "noticeable",
        "not mixed_is_slow",
        "not prefill_is_in_the_way"
      ],
      "did": [
        "spent all of max_num_batched_tokens",
        " = {setting.max_num_batched_tokens:setting}",
        " and left requests without tokens"
      ],
      "evidence": [],
      "then": [
        {
          "text": " Twice as many are a first value to try.",
          "when": [
            {
              "value": "token_budget",
              "above": 0.0
            }
          ]
        }
      ],
      "target": {
        "value": "token_budget",
        "times": 2.0
      }
    },
    {
      "name": "compute",
      "symptom": "many requests wait; steps with prefill take long",
      "diagnosis": "prefill keeps the GPU busy, and a larger max_num_batched_tokens would only make steps longer",
      "setting": "tensor_parallel_size",
      "direction": "up",
      "price": "more GPUs or engines; first try what costs none: another max_num_batched_tokens, kv_cache_dtype fp8, and KV kept in CPU memory (kv_offloading_size), which is then not computed again",
      "vllm": true,
      "steps": "reason:token_budget",
      "reasons": [
        "token_budget"
      ],
      "when": [
        "noticeable",
        "mixed_is_slow"
      ],
      "did": [
        "spent all of max_num_batched_tokens",
        " = {setting.max_num_batched_tokens:setting}",
        " and left requests without tokens"
      ],
      "evidence": [],
      "then": [
        " Steps with large prefills take {mixed_ratio:tenth} times as long as decode alone ({mixed_ms:tenth} ms against {decode_ms:tenth} ms).",
        {
          "text": " Twice as many GPUs are a first value to try.",
          "when": [
            {
              "value": "setting.tensor_parallel_size",
              "above": 0.0
            }
          ]
        }
      ],
      "target": {
        "value": "setting.tensor_parallel_size",
        "times": 2.0
      }
    },
    {
      "name": "whole-prompts",
      "symptom": "requests wait behind a long prompt",
      "diagnosis": "chunked prefill is off, so the prompt waits for a step with room for all of it",
      "setting": "enable_chunked_prefill",
      "direction": "on",
      "price": "a long prompt is spread over several steps",
      "vllm": true,
      "steps": "reason:prefill_exceeds_budget",
      "reasons": [
        "prefill_exceeds_budget"
      ],
      "when": [
        "noticeable"
      ],
      "did": [
        "stopped at a prompt longer than what was left of the budget"
      ],
      "evidence": [],
      "then": []
    },
    {
      "name": "memory",
      "symptom": "requests wait for KV blocks",
      "diagnosis": "the KV cache is too small for this load",
      "setting": "gpu_memory_utilization",
      "direction": "up",
      "price": "less head-room for activations; else half the memory for KV (kv_cache_dtype fp8), KV kept in CPU memory (kv_offloading_size), and last more GPUs (tensor_parallel_size)",
      "vllm": true,
      "steps": "reason:kv_",
      "reasons": [
        "kv_full_sequence",
        "kv_blocks"
      ],
      "when": [
        "noticeable",
        "not memory_is_set"
      ],
      "did": [
        "stopped for want of KV blocks",
        ": the head needed {reason.kv.needed:count}, {reason.kv.free:count} were free"
      ],
      "evidence": [],
      "then": [
        " At the worst {reason.worst.running:count} ran and {reason.worst.held:count} waited: all of them would need about {reason.worst.needed_blocks:count} blocks, {reason.worst.shortage:tenth} times the {reason.worst.total_blocks:count} that are there."
      ],
      "target": {
        "value": "reason.worst.needed_blocks",
        "times": 1.0,
        "above": "reason.worst.total_blocks",
        "words": "what gives {} KV blocks"
      }
    },
    {
      "name": "blocks",
      "symptom": "requests wait for KV blocks",
      "diagnosis": "the number of KV blocks was given, and it is too small for this load",
      "setting": "num_gpu_blocks_override",
      "direction": "up",
      "price": "more memory: without the setting the engine takes all blocks that its memory has room for",
      "vllm": true,
      "steps": "reason:kv_",
      "reasons": [
        "kv_full_sequence",
        "kv_blocks"
      ],
      "when": [
        "noticeable",
        "blocks_are_given"
      ],
      "did": [
        "stopped for want of KV blocks",
        ": the head needed {reason.kv.needed:count}, {reason.kv.free:count} were free"
      ],
      "evidence": [],
      "then": [
        " At the worst {reason.worst.running:count} ran and {reason.worst.held:count} waited: all of them would need about {reason.worst.needed_blocks:count} blocks, {reason.worst.shortage:tenth} times the {reason.worst.total_blocks:count} that are there.",
        " Without the setting the engine takes the {setting.memory_num_gpu_blocks:count} blocks that its memory has room for."
      ],
      "target": {
        "value": "reason.worst.needed_blocks",
        "at_most": "setting.memory_num_gpu_blocks",
        "times": 1.0
      }
    },
    {
      "name": "kv-bytes",
      "symptom": "requests wait for KV blocks",
      "diagnosis": "the memory for KV was given in bytes, and it is too small for this load",
      "setting": "kv_cache_memory_bytes",
      "direction": "up",
      "price": "less head-room for activations (where vLLM runs on a CPU, VLLM_CPU_KVCACHE_SPACE sets it)",
      "vllm": true,
      "steps": "reason:kv_",
      "reasons": [
        "kv_full_sequence",
        "kv_blocks"
      ],
      "when": [
        "noticeable",
        "bytes_are_given",
        "not blocks_are_given"
      ],
      "did": [
        "stopped for want of KV blocks",
        ": the head needed {reason.kv.needed:count}, {reason.kv.free:count} were free"
      ],
      "evidence": [],
      "then": [
        " At the worst {reason.worst.running:count} ran and {reason.worst.held:count} waited: all of them would need about {reason.worst.needed_blocks:count} blocks, {reason.worst.shortage:tenth} times the {reason.worst.total_blocks:count} that are there."
      ],
      "target": {
        "value": "setting.kv_cache_memory_bytes",
        "times": "reason.worst.shortage"
      }
    },
    {
      "name": "order",
      "symptom": "requests wait though smaller ones would fit",
      "diagnosis": "a large request at the head of the queue holds back the small ones behind it",
      "setting": "scheduling_policy",
      "direction": "choose",
      "price": "vLLM has fcfs and priority alone; Tokenyard's bypass, which vLLM runs with --scheduler-cls, passes over the head, and the large request waits longer",
      "vllm": false,
      "steps": "reason:kv_",
      "reasons": [
        "kv_full_sequence",
        "kv_blocks"
      ],
      "when": [
        "noticeable",
        {
          "value": "reason.kv.smallest_need",
          "at_least": 0.0
        },
        {
          "value": "reason.kv.smaller_would_fit_steps",
          "at_least": 0.25,
          "times": "reason.steps"
        }
      ],
      "did": [],
      "evidence": [
        "In {reason.kv.smaller_would_fit_steps:count} of {reason.steps:count} steps that stopped for want of KV blocks, the smallest waiting request would have fitted",
        ": it needed {reason.kv.smallest_need:count} blocks where the head needed {reason.kv.needed:count}."
      ],
      "then": [],
      "lost_share": "reason.fits_share"
    },
    {
      "name": "full-sequence",
      "symptom": "long prompts wait while memory is free",
      "diagnosis": "a request is admitted only when all of it fits, though its next chunk would",
      "setting": "scheduler_reserve_full_isl",
      "direction": "off",
      "price": "admitted earlier, more requests are preempted later",
      "vllm": true,
      "steps": "reason:kv_full_sequence",
      "reasons": [
        "kv_full_sequence"
      ],
      "when": [
        "noticeable",
        "room",
        "not preempts"
      ],
      "did": [
        "refused a request whose whole sequence did not fit, with {reason.kv_free:percent} of KV free",
        " and {preemptions:count} preemptions"
      ],
      "evidence": [],
      "then": []
    },
    {
      "name": "watermark",
      "symptom": "requests wait though they would fit",
      "diagnosis": "the watermark keeps blocks free",
      "setting": "watermark",
      "direction": "down",
      "price": "running requests find fewer free blocks to grow into: more preemptions",
      "vllm": true,
      "steps": "reason:kv_watermark",
      "reasons": [
        "kv_watermark"
      ],
      "when": [
        "noticeable"
      ],
      "did": [
        "kept blocks free for the watermark alone"
      ],
      "evidence": [],
      "then": []
    },
    {
      "name": "preemptions",
      "symptom": "work is thrown away and done again",
      "diagnosis": "more requests are admitted than the KV cache can carry to their end",
      "setting": "max_num_seqs",
      "direction": "down",
      "price": "fewer requests run at once; more KV blocks cure it without that",
      "vllm": true,
      "steps": "preempted:1..",
      "reasons": [
        "preempted_this_step"
      ],
      "when": [
        "costly_preemptions"
      ],
      "did": [],
      "evidence": [
        "Running requests lost their blocks",
        " {preemptions:count} times",
        " ({requests:count} requests)",
        {
          "text": "; {recomputed_tokens:count} tokens were computed again, {recomputed_share:percent} of all",
          "when": [
            "recomputes"
          ]
        },
        ".",
        " At most {peak_running:count} ran at once: the limit has to be lower than that, and three quarters are a first value to try."
      ],
      "then": [],
      "target": {
        "value": "peak_running",
        "times": 0.75
      }
    },
    {
      "name": "long-prefills",
      "symptom": "high p99 of the time per output token",
      "diagnosis": "large prefills hold up those who decode",
      "setting": "long_prefill_token_threshold",
      "direction": "set",
      "price": "long prompts take more steps to their first token; else lower max_num_batched_tokens",
      "vllm": true,
      "steps": "budget:25..",
      "reasons": [],
      "when": [
        "mixed_is_slow",
        "not prefill_is_in_the_way",
        {
          "value": "mixed_steps",
          "at_least": 0.01,
          "times": "steps"
        },
        {
          "value": "decode_ms",
          "above": 0.0
        },
        {
          "value": "tpot_p50_ms",
          "above": 0.0
        },
        {
          "value": "tpot_p99_ms",
          "at_least": 2.0,
          "times": "tpot_p50_ms"
        }
      ],
      "did": [],
      "evidence": [
        "{mixed_steps:count} of {steps:count} steps carried large prefills beside running requests and took {mixed_ratio:tenth} times as long as decode alone ({mixed_ms:tenth} ms against {decode_ms:tenth} ms)",
        "; p99 of the time per token is {tpot_p99_ms:tenth} ms, p50 {tpot_p50_ms:tenth} ms.",
        {
          "text": " A quarter of max_num_batched_tokens is a first value to try.",
          "when": [
            {
              "value": "token_budget",
              "above": 0.0
            }
          ]
        }
      ],
      "then": [],
      "target": {
        "value": "token_budget",
        "times": 0.25
      }
    },
    {
      "name": "no-prefix-cache",
      "symptom": "turns of a conversation compute their history again",
      "diagnosis": "prefix caching is off",
      "setting": "enable_prefix_caching",
      "direction": "on",
      "price": "hashing of full blocks",
      "vllm": true,
      "steps": "",
      "reasons": [],
      "when": [
        "conversations",
        {
          "value": "setting.enable_prefix_caching",
          "is": false
        }
      ],
      "did": [],
      "evidence": [
        "{requests:count} requests are turns of {jobs:count} jobs, and each computes its whole prompt again, because prefix caching is off."
      ],
      "then": []
    },
    {
      "name": "evicted-turns",
      "symptom": "few prefix hits in conversations",
      "diagnosis": "a turn's blocks are evicted before the next turn comes",
      "setting": "scheduling_policy",
      "direction": "choose",
      "price": "a policy that keeps finished turns (continuum-share) leaves less memory for others; else more KV blocks (kv_cache_dtype fp8, kv_offloading_size)",
      "vllm": false,
      "steps": "hit:0..60",
      "reasons": [],
      "when": [
        "conversations",
        {
          "value": "requests",
          "at_least": 20.0
        },
        {
          "value": "setting.enable_prefix_caching",
          "is_not": false
        },
        {
          "value": "local_hit_rate",
          "below": 0.6
        },
        {
          "value": "peak_kv_use",
          "at_least": 0.95
        }
      ],
      "did": [],
      "evidence": [
        "{requests:count} requests are turns of {jobs:count} jobs, but only {local_hit_rate:percent} of their prompt tokens were still cached",
        "; KV was {peak_kv_use:percent} full at its peak, so turns are evicted before the next one comes."
      ],
      "then": []
    },
    {
      "name": "lora-slots",
      "symptom": "requests wait for their LoRA adapter",
      "diagnosis": "more adapters are asked for than a step may hold",
      "setting": "max_loras",
      "direction": "up",
      "price": "memory for each adapter",
      "vllm": true,
      "steps": "reason:lora_slots",
      "reasons": [
        "lora_slots"
      ],
      "when": [
        "noticeable"
      ],
      "did": [
        "skipped requests because all LoRA slots were taken"
      ],
      "evidence": [],
      "then": [
        {
          "text": " Requests of one moment asked for up to {adapters:count} adapters.",
          "when": [
            {
              "value": "adapters",
              "above": 0.0
            }
          ]
        }
      ],
      "target": {
        "value": "adapters",
        "times": 1.0
      }
    },
    {
      "name": "encoder-budget",
      "symptom": "requests with images or audio wait",
      "diagnosis": "a step may not run enough encoder inputs",
      "setting": "max_num_encoder_input_tokens",
      "direction": "up",
      "price": "longer steps, more activation memory",
      "vllm": true,
      "steps": "reason:encoder_budget",
      "reasons": [
        "encoder_budget"
      ],
      "when": [
        "noticeable"
      ],
      "did": [
        "spent the encoder's budget"
      ],
      "evidence": [],
      "then": []
    },
    {
      "name": "remote-kv",
      "symptom": "requests wait for KV from elsewhere",
      "diagnosis": "loads take longer than computing would leave time for",
      "setting": "kv_connector",
      "direction": "choose",
      "price": "look at the connector's bandwidth, or load less",
      "vllm": true,
      "steps": "reason:waiting_remote_kv",
      "reasons": [
        "waiting_remote_kv"
      ],
      "when": [
        "noticeable"
      ],
      "did": [
        "skipped requests whose KV was on its way"
      ],
      "evidence": [],
      "then": []
    },
    {
      "name": "grammars",
      "symptom": "requests with structured output wait",
      "diagnosis": "grammars are compiled while requests wait",
      "setting": "structured_outputs_config",
      "direction": "choose",
      "price": "compile ahead, reuse schemas, or choose another backend",
      "vllm": true,
      "steps": "reason:waiting_grammar",
      "reasons": [
        "waiting_grammar"
      ],
      "when": [
        "noticeable"
      ],
      "did": [
        "skipped requests whose grammar was being compiled"
      ],
      "evidence": [],
      "then": []
    }
  ]
};
