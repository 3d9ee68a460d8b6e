/** The words of src/tokenyard/vocabulary. Made by scripts/generate_vocabulary.py: change it there, and run `make viewer`. */

export const FAMILIES = {
  "tokens": "token budget",
  "memory": "KV blocks",
  "sequences": "max_num_seqs",
  "order": "refused though blocks are free",
  "preempted": "after a preemption",
  "dependency": "waits for something outside",
  "healthy": "healthy",
  "idle": "idle",
  "unknown": "not known"
} as const;

export const REASONS = {
  "preempted_this_step": {
    "meaning": "A running request had just lost its blocks for want of memory; the freed blocks are kept for those that run, and no request is admitted in such a step.",
    "family": "preempted",
    "countedIn": null,
    "holds": true
  },
  "paused": {
    "meaning": "The scheduler was paused.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "queues_empty": {
    "meaning": "All requests that waited were looked at.",
    "family": "healthy",
    "countedIn": null,
    "holds": true
  },
  "token_budget": {
    "meaning": "The step's tokens (max_num_batched_tokens) were spent before these requests had their turn.",
    "family": "tokens",
    "countedIn": null,
    "holds": true
  },
  "max_num_seqs": {
    "meaning": "As many requests were running as max_num_seqs allows.",
    "family": "sequences",
    "countedIn": null,
    "holds": true
  },
  "prefill_exceeds_budget": {
    "meaning": "With chunked prefill off, the next prompt was longer than what was left of the step's tokens.",
    "family": "tokens",
    "countedIn": null,
    "holds": true
  },
  "prefill_cadence": {
    "meaning": "Prompts are computed in every n-th step only (prefill_schedule_interval); this one was left to those that decode.",
    "family": "tokens",
    "countedIn": null,
    "holds": true
  },
  "kv_full_sequence": {
    "meaning": "The whole prompt of the first request in the queue did not fit the free KV blocks, and a request is admitted only when all of it fits (scheduler_reserve_full_isl).",
    "family": "memory",
    "countedIn": null,
    "holds": true
  },
  "kv_blocks": {
    "meaning": "The first request in the queue needed more KV blocks for this step than were free.",
    "family": "memory",
    "countedIn": null,
    "holds": true
  },
  "kv_watermark": {
    "meaning": "Admitting would have left fewer free KV blocks than the watermark keeps.",
    "family": "memory",
    "countedIn": null,
    "holds": true
  },
  "encoder_budget": {
    "meaning": "The step's budget for image, audio or video inputs was used up.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "mamba_alignment": {
    "meaning": "What was left of the step's tokens did not fill a block of a state-space layer.",
    "family": "tokens",
    "countedIn": null,
    "holds": true
  },
  "mamba_state_not_ready": {
    "meaning": "The state that its cached prefix ends with was being computed in this very step.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "waiting_grammar": {
    "meaning": "The grammar of a structured output was still being compiled.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "waiting_remote_kv": {
    "meaning": "Its KV blocks were still on their way from elsewhere.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "waiting_stream_input": {
    "meaning": "Its next piece of input had not come.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "waiting_encoder_cache": {
    "meaning": "The encoder's output for one of its images or clips was still on its way from elsewhere.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "lora_slots": {
    "meaning": "All slots for LoRA adapters were taken by others in this step.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "policy_refused": {
    "meaning": "The scheduling policy held it back; its own word for that stands beside the reason (`detail`).",
    "family": "order",
    "countedIn": null,
    "holds": true
  },
  "connector_undecided": {
    "meaning": "The KV connector could not say yet what it has.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "async_kv_load_started": {
    "meaning": "The load of its KV blocks was started in this step.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  },
  "placeholders_cover_limit": {
    "meaning": "Tokens in flight already reach its length limit.",
    "family": "tokens",
    "countedIn": null,
    "holds": false
  },
  "no_new_tokens": {
    "meaning": "All its known tokens are computed or in flight.",
    "family": "tokens",
    "countedIn": null,
    "holds": true
  },
  "running_index_drift": {
    "meaning": "It stood behind a request that an idle victim made room for, and was skipped.",
    "family": "order",
    "countedIn": null,
    "holds": true
  },
  "self_preempted": {
    "meaning": "It needed a block, none was free, and it was itself next to give way.",
    "family": "preempted",
    "countedIn": "preempted_this_step",
    "holds": true
  },
  "hook_failed": {
    "meaning": "Its grammar raised an error instead of answering.",
    "family": "dependency",
    "countedIn": null,
    "holds": true
  }
} as const;

export const BUCKETS = {
  "tok-budget": {
    "meaning": "the step's token budget was spent",
    "family": "tokens",
    "blocked": true,
    "says": [
      "prefill_exceeds_budget",
      "token_budget"
    ]
  },
  "kv-exhausted": {
    "meaning": "too few free KV blocks",
    "family": "memory",
    "blocked": true,
    "says": [
      "kv_blocks",
      "kv_full_sequence",
      "kv_watermark",
      "preempted_this_step"
    ]
  },
  "max-seqs": {
    "meaning": "as many running as allowed",
    "family": "sequences",
    "blocked": true,
    "says": [
      "max_num_seqs"
    ]
  },
  "alloc-frag": {
    "meaning": "refused with many blocks free",
    "family": "order",
    "blocked": true,
    "says": []
  },
  "alloc-exhausted": {
    "meaning": "some admitted, then refused",
    "family": "memory",
    "blocked": true,
    "says": [
      "kv_blocks",
      "kv_full_sequence",
      "kv_watermark"
    ]
  },
  "kv-tight": {
    "meaning": "nearly full, not provably short",
    "family": "memory",
    "blocked": true,
    "says": [
      "kv_blocks",
      "kv_full_sequence",
      "kv_watermark",
      "preempted_this_step"
    ]
  },
  "admitted-all": {
    "meaning": "every waiting request got in",
    "family": "healthy",
    "blocked": false,
    "says": []
  },
  "under-capacity": {
    "meaning": "no request waited",
    "family": "healthy",
    "blocked": false,
    "says": []
  },
  "idle": {
    "meaning": "nothing to do",
    "family": "idle",
    "blocked": false,
    "says": []
  },
  "unknown": {
    "meaning": "the trace lacks fields to show it",
    "family": "unknown",
    "blocked": false,
    "says": []
  }
} as const;

export const STEP_REASONS = {
  "tok-budget": {
    "meaning": "At least 95 % of the step's token budget was given out.",
    "bucket": "tok-budget",
    "proves": "token_budget"
  },
  "kv-after-run": {
    "meaning": "After the running requests' prefill, fewer blocks were free than the smallest waiting request needs.",
    "bucket": "kv-exhausted",
    "proves": "kv_blocks"
  },
  "kv-insuf": {
    "meaning": "Fewer blocks were free than the smallest waiting request needs.",
    "bucket": "kv-exhausted",
    "proves": "kv_blocks"
  },
  "kv-low": {
    "meaning": "Fewer than 20 blocks were free.",
    "bucket": "kv-exhausted",
    "proves": "kv_blocks"
  },
  "max-seqs": {
    "meaning": "As many requests were running as max_num_seqs allows.",
    "bucket": "max-seqs",
    "proves": "max_num_seqs"
  },
  "kv-tight-after-run": {
    "meaning": "After the running requests' prefill, fewer than 200 blocks were free.",
    "bucket": "kv-tight",
    "proves": null
  },
  "alloc-exhausted": {
    "meaning": "Some requests were admitted, then one was refused.",
    "bucket": "alloc-exhausted",
    "proves": null
  },
  "alloc-rejected": {
    "meaning": "More than 500 blocks were free and no request was admitted: the head of the queue needed more.",
    "bucket": "alloc-frag",
    "proves": null
  },
  "kv-marginal": {
    "meaning": "Between 20 and 500 blocks were free; which check fired cannot be determined.",
    "bucket": "kv-tight",
    "proves": null
  },
  "unknown": {
    "meaning": "The trace lacks the fields to show it.",
    "bucket": "unknown",
    "proves": null
  }
} as const;

export const LIMITS = {
  "budgetShare": 0.95,
  "freeLow": 20,
  "freeTight": 200,
  "freePlenty": 500
} as const;

export const PHASES = {
  "queued": "It waits to be scheduled for the first time.",
  "prefill": "It runs and computes its prompt.",
  "decode": "It runs and brings output tokens.",
  "preempted": "It had run, lost its blocks and waits again."
} as const;

export const WAIT_STATES = {
  "queued": "before it was first scheduled",
  "preempted": "after losing its blocks",
  "stalled": "running without tokens"
} as const;

export const PLACES = {
  "own": {
    "word": "itself",
    "meaning": "It was refused, skipped or preempted itself."
  },
  "behind": {
    "word": "behind the head",
    "meaning": "It stood behind the one that was refused."
  },
  "all": {
    "word": "everybody",
    "meaning": "It held back all waiting requests alike."
  },
  "guess": {
    "word": "a guess",
    "meaning": "Guessed from counts: no reason is recorded."
  },
  "outside": {
    "word": "",
    "meaning": ""
  }
} as const;

export const GAPS = {
  "front_end": {
    "meaning": "It was on its way to this scheduler: the server's front end had it or, of a prefill-decode pair, the prefill engine.",
    "family": "idle"
  },
  "step_in_progress": {
    "meaning": "A step was running when it arrived; the scheduler decides when the next one begins.",
    "family": "idle"
  },
  "between_steps": {
    "meaning": "No step was running; the host had not begun the next one.",
    "family": "idle"
  },
  "not_recorded": {
    "meaning": "The trace does not record it: steps are left out of it, or their outcomes.",
    "family": "unknown"
  },
  "not_listed": {
    "meaning": "One of several reasons; the trace's bound on ids leaves out which.",
    "family": "unknown"
  }
} as const;

export const EVENTS = {
  "step_snapshot": {
    "needsStep": true
  },
  "step_decision": {
    "needsStep": true
  },
  "prefix_cache_lookup": {
    "needsStep": true
  },
  "trace_start": {
    "needsStep": false
  },
  "admission_outcome": {
    "needsStep": true
  },
  "request_arrived": {
    "needsStep": false
  },
  "request_finished": {
    "needsStep": false
  },
  "step_completed": {
    "needsStep": true
  },
  "pause_changed": {
    "needsStep": false
  },
  "cache_reset": {
    "needsStep": false
  },
  "pin_ended": {
    "needsStep": false
  },
  "trace_end": {
    "needsStep": false
  }
} as const;

export const GUESS = "No reason is recorded; from the step's counts: {meaning}" as const;

export const CLASSES = {
  "mostValues": 16,
  "bounds": [
    0,
    256,
    1024,
    4096,
    16384,
    65536,
    262144
  ]
} as const;

export const UNKNOWN_REASON = "A reason that this version does not know." as const;
