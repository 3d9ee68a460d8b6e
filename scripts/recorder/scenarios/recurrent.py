"""Models with a recurrent state: Mamba and linear attention, alone and beside full attention."""

from __future__ import annotations

from recorder.plan import Engine, Group, Scenario
from recorder.scenarios.common import between, mostly_rising
from recorder.workloads import aborts, conversations, dressed, illustrated, independent, resets, sharing

__all__ = ["RECURRENT"]

FULL, STATE = Group(), Group(kind="mamba")
SHARED = sharing(20, prefixes=3, prefix=(50, 120), tail=(3, 40), output=(15, 60), gap=(0, 2), repeats=0.3)
CROWDED = sharing(24, prefixes=3, prefix=(50, 90), tail=(3, 40), output=(15, 60), gap=(0, 1), repeats=0.3)
TALKS = conversations(9, turns=(2, 4), system=40, user=(6, 30), output=(8, 30), think=(1, 6))

RECURRENT: tuple[Scenario, ...] = (
    Scenario(
        name="mamba_align",
        seed=2601,
        engine=Engine(max_num_batched_tokens=72, num_blocks=70, groups=(FULL, STATE), mamba_cache_mode="align"),
        build=aborts(SHARED, 6),
        shows=("hit_tokens", "null_blocks", "zeroed_blocks", "aborts"),
    ),
    Scenario(
        name="mamba_align_small_budget_priority",
        seed=2602,
        engine=Engine(
            policy="priority",
            max_num_seqs=16,
            max_num_batched_tokens=44,
            num_blocks=120,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
            groups=(FULL, STATE, STATE),
            mamba_cache_mode="align",
        ),
        build=dressed(CROWDED, priority=mostly_rising),
        shows=("hit_tokens", "preemptions", "rollbacks", "left_out", "drafts"),
    ),
    Scenario(
        name="mamba_align_eagle_async",
        seed=2603,
        engine=Engine(
            max_num_batched_tokens=96,
            num_blocks=110,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
            groups=(Group(eagle=True), STATE),
            mamba_cache_mode="align",
        ),
        build=TALKS,
        acceptance=75,
        shows=("hit_tokens", "drafts", "null_blocks"),
    ),
    Scenario(
        name="mamba_align_eagle_unmarked",
        seed=2604,
        engine=Engine(
            max_num_batched_tokens=96,
            num_blocks=100,
            async_scheduling=True,
            num_speculative_tokens=2,
            spec_method="eagle",
            groups=(FULL, STATE),
            mamba_cache_mode="align",
        ),
        build=TALKS,
        acceptance=85,
        shows=("hit_tokens", "drafts"),
    ),
    Scenario(
        name="mamba_align_images",
        seed=2605,
        engine=Engine(
            max_num_batched_tokens=64,
            num_blocks=90,
            groups=(STATE, FULL),
            mamba_cache_mode="align",
            max_num_encoder_input_tokens=40,
            encoder_cache_size=80,
        ),
        build=illustrated(SHARED, images=(1, 2), length=(4, 20), pool=8, gap=(16, 40)),
        shows=("encoder_inputs", "hit_tokens"),
    ),
    Scenario(
        name="mamba_alone_all",
        seed=2606,
        engine=Engine(max_num_batched_tokens=72, num_blocks=30, groups=(STATE,), mamba_cache_mode="all"),
        build=resets(SHARED, (25, True)),
        shows=("hit_tokens", "resets"),
    ),
    Scenario(
        name="mamba_all_drafts_async",
        seed=2607,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=90,
            num_blocks=56,
            async_scheduling=True,
            num_speculative_tokens=2,
            spec_method="ngram_gpu",
            groups=(FULL, STATE, Group(kind="swa", window=40)),
            mamba_cache_mode="all",
        ),
        build=dressed(SHARED, priority=between(-2, 2)),
        shows=("hit_tokens", "drafts", "preemptions"),
    ),
    Scenario(
        name="mamba_none_beside_attention",
        seed=2608,
        engine=Engine(
            max_num_batched_tokens=72,
            num_blocks=44,
            enable_prefix_caching=False,
            groups=(FULL, Group(kind="mamba", block_size=256)),
        ),
        build=independent(18, prompt=(10, 60), output=(30, 80), gap=(0, 2)),
        shows=("preemptions", "zeroed_blocks"),
    ),
    Scenario(
        name="mamba_none_drafts",
        seed=2609,
        engine=Engine(
            max_num_batched_tokens=72,
            num_blocks=40,
            enable_prefix_caching=False,
            num_speculative_tokens=3,
            spec_method="ngram",
            groups=(Group(kind="mamba", block_size=256),),
        ),
        build=independent(18, prompt=(10, 60), output=(30, 80), gap=(0, 2)),
        shows=("drafts",),
    ),
)
