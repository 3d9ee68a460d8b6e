"""Two steps in flight: placeholders, stale outputs, steps that are not needed any more.

Resets while drafts are in flight, and resets in two successive ticks, cannot be recorded: vLLM 0.22.1 then counts the
stale outputs wrongly and hangs or fails an assertion of its own.
"""

from __future__ import annotations

from recorder.plan import Engine, Group, Scenario
from recorder.scenarios.common import SHARED_STORM, between, mostly_rising, one_of
from recorder.workloads import aborts, conversations, dressed, independent, pauses, resets, sharing

__all__ = ["ASYNCHRONOUS"]

SMALL_STORM = sharing(18, prefixes=3, prefix=(35, 75), tail=(3, 30), output=(30, 70), gap=(0, 2))

ASYNCHRONOUS: tuple[Scenario, ...] = (
    Scenario(
        name="pipeline_2_async",
        seed=2121,
        engine=Engine(max_num_batched_tokens=96, num_blocks=32, async_scheduling=True, pipeline_parallel_size=2),
        build=aborts(SMALL_STORM, 3),
        shows=("preemptions", "hit_tokens", "aborts"),
    ),
    Scenario(
        name="pipeline_4_async_priority",
        seed=2122,
        engine=Engine(
            policy="priority",
            max_num_seqs=9,
            max_num_batched_tokens=64,
            num_blocks=36,
            async_scheduling=True,
            pipeline_parallel_size=4,
        ),
        build=dressed(SMALL_STORM, priority=mostly_rising),
        shows=("preemptions", "hit_tokens"),
    ),
    Scenario(
        name="pipeline_3_async_windows",
        seed=2123,
        engine=Engine(
            max_num_batched_tokens=64,
            num_blocks=90,
            async_scheduling=True,
            pipeline_parallel_size=3,
            groups=(Group(), Group(kind="swa", window=48)),
        ),
        build=SMALL_STORM,
        shows=("hit_tokens",),
    ),
    Scenario(
        name="pipeline_3",
        seed=2124,
        engine=Engine(max_num_batched_tokens=64, num_blocks=40, pipeline_parallel_size=3),
        build=SMALL_STORM,
        shows=("preemptions", "hit_tokens"),
    ),
    Scenario(
        name="async_short_answers",
        seed=2101,
        engine=Engine(max_num_seqs=5, max_num_batched_tokens=60, async_scheduling=True),
        build=independent(24, prompt=(5, 70), output=(1, 6), gap=(0, 2)),
        shows=("lengths", "left_out"),
    ),
    Scenario(
        name="async_stops",
        seed=2102,
        engine=Engine(max_num_batched_tokens=96, num_blocks=45, async_scheduling=True),
        build=dressed(
            independent(26, prompt=(5, 60), output=(5, 60), gap=(0, 1)),
            eos=one_of(None, 3),
            stop_token_ids=one_of((), (3, 8), (11,)),
            min_tokens=one_of(0, 2, 5),
        ),
        vocab=22,
        shows=("stops", "stop_tokens"),
    ),
    Scenario(
        name="async_priority_aborts_resets",
        seed=2103,
        engine=Engine(
            policy="priority", max_num_seqs=9, max_num_batched_tokens=90, num_blocks=32, async_scheduling=True
        ),
        build=resets(
            resets(aborts(dressed(SMALL_STORM, priority=mostly_rising), 8), (12, True), (40, False), (55, True)),
            (24, True),
            (33, True),
            when="mid",
        ),
        shows=("preemptions", "aborts", "resets", "hit_tokens"),
    ),
    Scenario(
        name="async_resets_while_prefilling",
        seed=2104,
        engine=Engine(max_num_batched_tokens=32, num_blocks=70, async_scheduling=True),
        build=resets(
            independent(12, prompt=(40, 150), output=(4, 30), gap=(0, 4)),
            (4, True),
            (11, True),
            (20, True),
            when="mid",
        ),
        shows=("resets", "prefill_chunks"),
    ),
    Scenario(
        name="async_pauses",
        seed=2105,
        engine=Engine(max_num_batched_tokens=80, num_blocks=40, async_scheduling=True),
        build=pauses(
            aborts(sharing(20, prefixes=3, prefix=(35, 90), tail=(3, 40), output=(6, 40)), 6),
            *((5, 1), (12, 0), (22, 2), (27, 0), (38, 2), (41, 1), (47, 0)),
        ),
        shows=("aborts", "hit_tokens"),
    ),
    Scenario(
        name="async_priority_drift",
        seed=2106000,
        engine=Engine(
            policy="priority", max_num_seqs=10, max_num_batched_tokens=120, num_blocks=22, async_scheduling=True
        ),
        build=dressed(independent(60, prompt=(12, 40), output=(1, 30), gap=(0, 1)), priority=mostly_rising),
        shows=("preemptions", "left_out"),
    ),
    Scenario(
        name="async_eagle_pressure",
        seed=2107,
        engine=Engine(
            max_num_seqs=8,
            max_num_batched_tokens=80,
            num_blocks=34,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
        ),
        build=aborts(SHARED_STORM, 10),
        acceptance=70,
        shows=("drafts", "preemptions", "hit_tokens", "aborts"),
    ),
    Scenario(
        name="async_draft_model_priority",
        seed=2108008,
        engine=Engine(
            policy="priority",
            max_num_seqs=10,
            max_num_batched_tokens=44,
            num_blocks=36,
            async_scheduling=True,
            num_speculative_tokens=4,
            spec_method="draft_model",
        ),
        build=dressed(
            independent(30, prompt=(12, 50), output=(4, 60), gap=(0, 2)),
            priority=mostly_rising,
            eos=one_of(None, 5),
            min_tokens=one_of(0, 4),
        ),
        vocab=60,
        acceptance=70,
        shows=("drafts", "preemptions", "left_out"),
    ),
    Scenario(
        name="async_ngram_gpu_length",
        seed=2109,
        engine=Engine(
            max_num_batched_tokens=60,
            max_model_len=80,
            num_blocks=40,
            async_scheduling=True,
            num_speculative_tokens=5,
            spec_method="ngram_gpu",
        ),
        build=independent(16, prompt=(30, 79), output=(5, 60), gap=(0, 2), cap=False),
        acceptance=80,
        shows=("drafts", "lengths"),
    ),
    Scenario(
        name="async_conversations_slices",
        seed=2110,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=90,
            max_model_len=512,
            num_blocks=48,
            max_loras=2,
            long_prefill_token_threshold=28,
            async_scheduling=True,
        ),
        build=aborts(
            dressed(
                conversations(10, turns=(2, 4), system=40, user=(8, 40), output=(10, 40), think=(1, 8), gap=(0, 2)),
                priority=between(0, 2),
                lora=between(0, 3),
            ),
            6,
        ),
        shows=("hit_tokens", "preemptions", "skipped_steps"),
    ),
)
