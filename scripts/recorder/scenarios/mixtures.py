"""Many features at once, on larger engines."""

from __future__ import annotations

from recorder.plan import Engine, Group, Scenario
from recorder.scenarios.common import between, one_of
from recorder.workloads import aborts, conversations, dressed, illustrated, independent, resets, sharing

__all__ = ["EVERYTHING", "LATER"]

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

LATER: tuple[Scenario, ...] = (
    Scenario(
        name="later_whole_hits_padded",
        seed=3301,
        engine=Engine(max_num_batched_tokens=48, num_blocks=60, num_speculative_tokens=4, spec_method="ngram"),
        build=sharing(40, prefixes=2, prefix=(32, 32), tail=(1, 17), output=(3, 30), gap=(0, 3), repeats=0.7),
        acceptance=70,
        shows=("drafts", "hit_tokens"),
    ),
    Scenario(
        name="later_lone_long_prompts",
        seed=3302,
        engine=Engine(max_num_batched_tokens=96, long_prefill_token_threshold=20, num_blocks=90),
        build=independent(24, prompt=(30, 150), output=(2, 25), gap=(0, 14)),
        shows=("prefill_chunks",),
    ),
    Scenario(
        name="later_eagle_images_follow",
        seed=3303,
        engine=Engine(
            max_num_batched_tokens=72,
            num_blocks=80,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
            max_num_encoder_input_tokens=32,
            encoder_cache_size=48,
        ),
        build=illustrated(
            conversations(14, turns=(2, 4), system=18, user=(6, 30), output=(6, 30), think=(1, 5)),
            images=(1, 3),
            length=(3, 14),
            pool=5,
            gap=(1, 9),
        ),
        shows=("drafts", "encoder_inputs", "hit_tokens"),
    ),
    Scenario(
        name="later_windows_part_ways",
        seed=3304,
        engine=Engine(
            max_num_batched_tokens=80,
            num_blocks=150,
            async_scheduling=True,
            groups=(Group(), Group(kind="swa", window=24), Group(kind="swa", window=70)),
        ),
        build=sharing(50, prefixes=3, prefix=(40, 110), tail=(3, 50), output=(4, 50), gap=(0, 3), repeats=0.3),
        shows=("hit_tokens", "null_blocks"),
    ),
    Scenario(
        name="later_draft_model_slots",
        seed=3305,
        engine=Engine(
            policy="priority",
            max_num_seqs=12,
            max_num_batched_tokens=30,
            num_blocks=40,
            num_speculative_tokens=2,
            spec_method="draft_model",
        ),
        build=dressed(sharing(30, prefixes=3, prefix=(20, 60), tail=(3, 40), output=(10, 60)), priority=between(-3, 3)),
        shows=("drafts",),
    ),
)
"""What came after 0.22: recorded from later versions only."""
