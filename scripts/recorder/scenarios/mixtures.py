"""Many features at once, on larger engines."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import between, one_of
from recorder.workloads import aborts, conversations, dressed, resets, sharing

__all__ = ["EVERYTHING"]

EVERYTHING: tuple[Scenario, ...] = (
    Scenario(
        name="mix_fcfs",
        seed=1701,
        engine=Engine(
            max_num_seqs=18,
            max_num_batched_tokens=200,
            max_model_len=400,
            num_blocks=96,
            long_prefill_token_threshold=80,
        ),
        build=resets(
            aborts(
                dressed(
                    sharing(60, prefixes=6, prefix=(25, 150), tail=(3, 100), output=(4, 70)),
                    cache_salt=one_of(None, None, "west"),
                    eos=one_of(None, 5),
                    skip_reading_prefix_cache=one_of(False, False, False, True),
                ),
                12,
            ),
            *((40, False), (70, True)),
        ),
        vocab=120,
        shows=("preemptions", "hit_tokens", "aborts", "stops"),
    ),
    Scenario(
        name="mix_priority",
        seed=1702,
        engine=Engine(
            policy="priority",
            max_num_seqs=16,
            max_num_batched_tokens=150,
            max_model_len=512,
            num_blocks=80,
            max_loras=3,
        ),
        build=aborts(
            dressed(
                conversations(22, turns=(2, 4), system=45, user=(8, 60), output=(8, 50), think=(1, 9), gap=(0, 2)),
                priority=between(-3, 3),
                lora=between(0, 4),
            ),
            10,
        ),
        shows=("preemptions", "hit_tokens", "aborts", "skipped_steps"),
    ),
)
