"""Budget, seats, prefill slices, adapter slots and pauses."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import SHARED_STORM, STORM, between, one_of
from recorder.workloads import aborts, dressed, independent, pauses, sharing

__all__ = ["FIRST_COME", "LIMITS", "PREFILL"]

FIRST_COME: tuple[Scenario, ...] = (
    Scenario(
        name="fcfs",
        seed=1001,
        engine=Engine(max_num_seqs=6, max_num_batched_tokens=192),
        build=independent(22, prompt=(5, 110), output=(3, 45), gap=(0, 3)),
        shows=("lengths",),
    ),
    Scenario(
        name="fcfs_budget_of_20",
        seed=1002,
        engine=Engine(max_num_seqs=10, max_num_batched_tokens=20),
        build=independent(18, prompt=(25, 120), output=(4, 30), gap=(0, 3)),
        shows=("prefill_chunks", "queued_steps"),
    ),
    Scenario(
        name="fcfs_one_seat",
        seed=1003,
        engine=Engine(max_num_seqs=1, max_num_batched_tokens=64),
        build=independent(10, prompt=(5, 90), output=(1, 20), gap=(0, 4)),
        shows=("queued_steps",),
    ),
    Scenario(
        name="fcfs_four_seats",
        seed=1004,
        engine=Engine(max_num_seqs=4, max_num_batched_tokens=128),
        build=independent(26, prompt=(5, 60), output=(6, 30), gap=(0, 1)),
        shows=("queued_steps",),
    ),
    Scenario(
        name="fcfs_cache_off",
        seed=1005,
        engine=Engine(max_num_batched_tokens=96, num_blocks=150, enable_prefix_caching=False),
        build=sharing(22, prefixes=2, prefix=(30, 70), tail=(3, 40), output=(4, 35)),
    ),
)

PREFILL: tuple[Scenario, ...] = (
    Scenario(
        name="whole_prompts",
        seed=1201,
        engine=Engine(max_num_seqs=8, max_num_batched_tokens=256, enable_chunked_prefill=False),
        build=independent(24, prompt=(20, 180), output=(4, 40), gap=(0, 1)),
        shows=("queued_steps",),
    ),
    Scenario(
        name="whole_prompts_pressure",
        seed=1202,
        engine=Engine(max_num_seqs=9, max_num_batched_tokens=256, num_blocks=34, enable_chunked_prefill=False),
        build=STORM,
        shows=("preemptions",),
    ),
    Scenario(
        name="slices_of_24",
        seed=1203,
        engine=Engine(max_num_batched_tokens=80, long_prefill_token_threshold=24),
        build=independent(20, prompt=(8, 170), output=(4, 35)),
        shows=("prefill_chunks",),
    ),
    Scenario(
        name="slices_of_45_pressure",
        seed=1204,
        engine=Engine(max_num_batched_tokens=104, num_blocks=34, long_prefill_token_threshold=45),
        build=SHARED_STORM,
        shows=("prefill_chunks", "preemptions"),
    ),
    Scenario(
        name="slices_of_33_priority",
        seed=1205,
        engine=Engine(policy="priority", max_num_batched_tokens=88, num_blocks=38, long_prefill_token_threshold=33),
        build=dressed(independent(22, prompt=(30, 160), output=(25, 60)), priority=between(-2, 2)),
        shows=("prefill_chunks", "preemptions"),
    ),
)

LIMITS: tuple[Scenario, ...] = (
    Scenario(
        name="adapters_one_slot",
        seed=1601,
        engine=Engine(max_num_batched_tokens=112, num_blocks=70, max_loras=1),
        build=dressed(
            sharing(28, prefixes=2, prefix=(35, 70), tail=(3, 30), output=(4, 30), gap=(0, 1)),
            lora=between(0, 3),
            cache_salt=one_of(None, None, "east"),
        ),
        shows=("skipped_steps", "hit_tokens"),
    ),
    Scenario(
        name="adapters_two_slots",
        seed=1602,
        engine=Engine(max_num_batched_tokens=112, max_loras=2),
        build=dressed(sharing(28, prefixes=3, prefix=(35, 70), tail=(3, 30), output=(4, 30)), lora=between(0, 5)),
        shows=("skipped_steps", "hit_tokens"),
    ),
    Scenario(
        name="adapters_priority_pressure",
        seed=1603,
        engine=Engine(policy="priority", max_num_batched_tokens=112, num_blocks=38, max_loras=2),
        build=dressed(SHARED_STORM, lora=between(0, 4), priority=between(-2, 2)),
        shows=("skipped_steps", "preemptions"),
    ),
    Scenario(
        name="pauses",
        seed=1604,
        engine=Engine(max_num_batched_tokens=112, num_blocks=56),
        build=pauses(
            aborts(sharing(24, prefixes=3, prefix=(35, 90), tail=(3, 40), output=(8, 40)), 4),
            *((5, 1), (12, 0), (22, 2), (27, 0), (38, 2), (41, 1), (47, 0)),
        ),
        shows=("empty_steps", "queued_steps", "aborts"),
    ),
)
