"""Pools too small for what runs."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import SHARED_STORM, STORM
from recorder.workloads import independent

__all__ = ["MEMORY"]

MEMORY: tuple[Scenario, ...] = (
    Scenario(
        name="pressure",
        seed=1101,
        engine=Engine(max_num_seqs=7, max_num_batched_tokens=112, num_blocks=29),
        build=STORM,
        shows=("preemptions", "resumed"),
    ),
    Scenario(
        name="pressure_blocks_of_8",
        seed=1102,
        engine=Engine(max_num_seqs=10, max_num_batched_tokens=80, num_blocks=77, block_size=8),
        build=SHARED_STORM,
        shows=("preemptions", "hit_tokens"),
    ),
    Scenario(
        name="pressure_blocks_of_32",
        seed=1103,
        engine=Engine(max_num_seqs=10, max_num_batched_tokens=144, num_blocks=22, block_size=32),
        build=SHARED_STORM,
        shows=("preemptions", "hit_tokens"),
    ),
    Scenario(
        name="pressure_cache_off",
        seed=1104,
        engine=Engine(max_num_batched_tokens=128, num_blocks=30, enable_prefix_caching=False),
        build=STORM,
        shows=("preemptions", "resumed"),
    ),
    Scenario(
        name="pressure_no_full_sequence_gate",
        seed=1105,
        engine=Engine(max_num_seqs=9, max_num_batched_tokens=48, num_blocks=36, scheduler_reserve_full_isl=False),
        build=independent(22, prompt=(55, 190), output=(15, 45), gap=(0, 1)),
        shows=("preemptions", "prefill_chunks"),
    ),
    Scenario(
        name="pool_filled_exactly",
        seed=1106,
        engine=Engine(max_num_seqs=3, max_num_batched_tokens=64, num_blocks=9),
        build=independent(9, prompt=(40, 128), output=(128, 128), gap=(0, 20)),
        shows=("preemptions", "lengths"),
    ),
)
