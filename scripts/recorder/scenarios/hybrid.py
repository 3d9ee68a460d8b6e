"""Models whose layers differ: several KV-cache groups over one pool."""

from __future__ import annotations

from recorder.plan import Engine, Group, Scenario
from recorder.scenarios.common import between, mostly_rising
from recorder.workloads import aborts, conversations, dressed, independent, resets, sharing

__all__ = ["HYBRID"]

FULL = Group()
SHARED = sharing(20, prefixes=3, prefix=(50, 120), tail=(3, 40), output=(15, 60), gap=(0, 2), repeats=0.3)

HYBRID: tuple[Scenario, ...] = (
    Scenario(
        name="window_alone",
        seed=2201,
        engine=Engine(max_num_batched_tokens=72, num_blocks=44, groups=(Group(kind="swa", window=37),)),
        build=SHARED,
        shows=("hit_tokens",),
    ),
    Scenario(
        name="window_alone_eagle",
        seed=2202,
        engine=Engine(
            max_num_batched_tokens=72,
            num_blocks=60,
            groups=(Group(kind="swa", window=24),),
            num_speculative_tokens=3,
            spec_method="eagle",
        ),
        build=SHARED,
        shows=("hit_tokens", "drafts"),
    ),
    Scenario(
        name="full_and_window",
        seed=2203,
        engine=Engine(max_num_batched_tokens=80, num_blocks=64, groups=(FULL, Group(kind="swa", window=53))),
        build=aborts(SHARED, 8),
        shows=("hit_tokens", "preemptions", "null_blocks"),
    ),
    Scenario(
        name="window_then_full_cache_off",
        seed=2204,
        engine=Engine(
            max_num_batched_tokens=72,
            num_blocks=60,
            enable_prefix_caching=False,
            groups=(Group(kind="swa", window=30), FULL),
        ),
        build=independent(16, prompt=(18, 70), output=(30, 80), gap=(0, 2)),
        shows=("preemptions",),
    ),
    Scenario(
        name="hybrid_eagle_marked",
        seed=2205,
        engine=Engine(
            max_num_batched_tokens=80,
            num_blocks=84,
            groups=(FULL, Group(kind="swa", window=40, eagle=True)),
            num_speculative_tokens=3,
            spec_method="eagle",
        ),
        build=SHARED,
        shows=("hit_tokens", "drafts"),
    ),
    Scenario(
        name="hybrid_eagle_unmarked_priority",
        seed=2206,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=96,
            num_blocks=70,
            groups=(FULL, Group(kind="swa", window=57)),
            num_speculative_tokens=2,
            spec_method="eagle",
        ),
        build=dressed(SHARED, priority=between(-2, 2)),
        acceptance=75,
        shows=("hit_tokens", "drafts", "preemptions"),
    ),
    Scenario(
        name="hybrid_async_priority",
        seed=2207,
        engine=Engine(
            policy="priority",
            max_num_seqs=9,
            max_num_batched_tokens=88,
            num_blocks=50,
            async_scheduling=True,
            groups=(FULL, Group(kind="swa", window=33)),
        ),
        build=resets(aborts(dressed(SHARED, priority=mostly_rising), 6), (30, True), when="mid"),
        shows=("preemptions", "hit_tokens", "aborts"),
    ),
    Scenario(
        name="chunked_local_slices",
        seed=2208,
        engine=Engine(
            max_num_batched_tokens=90,
            num_blocks=66,
            long_prefill_token_threshold=36,
            groups=(FULL, Group(kind="chunked", window=48)),
        ),
        build=SHARED,
        shows=("hit_tokens", "prefill_chunks"),
    ),
    Scenario(
        name="chunked_local_async",
        seed=2209,
        engine=Engine(
            max_num_batched_tokens=70,
            num_blocks=58,
            async_scheduling=True,
            groups=(FULL, Group(kind="chunked", window=80)),
        ),
        build=aborts(SHARED, 6),
        shows=("hit_tokens", "null_blocks"),
    ),
    Scenario(
        name="mixed_blocks_8_and_32",
        seed=2210,
        engine=Engine(
            max_num_batched_tokens=96,
            num_blocks=130,
            groups=(Group(block_size=32), Group(kind="swa", window=44, block_size=8)),
        ),
        build=SHARED,
        shows=("hit_tokens",),
    ),
    Scenario(
        name="mixed_blocks_window_larger",
        seed=2211,
        engine=Engine(
            max_num_batched_tokens=96,
            num_blocks=90,
            groups=(Group(block_size=16), Group(kind="swa", window=60, block_size=48)),
        ),
        build=sharing(22, prefixes=3, prefix=(96, 144), tail=(3, 40), output=(10, 40), gap=(0, 2), repeats=0.4),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="three_groups_conversations",
        seed=2212,
        engine=Engine(
            max_num_batched_tokens=96,
            max_model_len=512,
            num_blocks=110,
            groups=(FULL, Group(kind="swa", window=41), Group(kind="swa", window=90)),
        ),
        build=conversations(9, turns=(2, 4), system=50, user=(8, 40), output=(8, 35), think=(1, 9)),
        shows=("hit_tokens", "null_blocks"),
    ),
    Scenario(
        name="three_groups_two_of_a_kind",
        seed=2213,
        engine=Engine(
            max_num_batched_tokens=96,
            num_blocks=84,
            groups=(Group(kind="swa", window=35), FULL, Group(kind="swa", window=35)),
        ),
        build=SHARED,
        shows=("hit_tokens", "preemptions"),
    ),
    Scenario(
        name="two_full_groups",
        seed=2214,
        engine=Engine(max_num_batched_tokens=88, num_blocks=60, enable_prefix_caching=False, groups=(FULL, FULL)),
        build=resets(SHARED, (20, True), (40, False)),
        shows=("preemptions",),
    ),
    Scenario(
        name="hybrid_drafts_async_mixed_blocks",
        seed=2215,
        engine=Engine(
            max_num_batched_tokens=90,
            num_blocks=100,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
            groups=(Group(block_size=32), Group(kind="swa", window=50, block_size=16, eagle=True)),
        ),
        build=SHARED,
        acceptance=70,
        shows=("drafts", "hit_tokens"),
    ),
)
