"""What passes through beside tokens, and the rarer ways in which requests begin, go on and end."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import between, mostly_rising, one_of
from recorder.workloads import aborts, dressed, endings, grammars, independent, resets, sessions, sharing

__all__ = ["PASSING"]

VOCAB = 60

PASSING: tuple[Scenario, ...] = (
    Scenario(
        name="repetitions",
        seed=2501,
        engine=Engine(max_num_batched_tokens=72, num_blocks=30, num_speculative_tokens=3, spec_method="ngram"),
        vocab=3,
        build=dressed(
            independent(18, prompt=(5, 40), output=(10, 60), gap=(0, 2)),
            repetition=one_of(None, (1, 0, 4), (3, 2, 3), (4, 0, 3)),
            min_tokens=one_of(0, 0, 6),
            stop_token_ids=one_of((), (), (2,)),
        ),
        shows=("repetitions", "drafts", "lengths", "stops"),
    ),
    Scenario(
        name="repetitions_async",
        seed=2502,
        engine=Engine(max_num_batched_tokens=72, num_blocks=16, async_scheduling=True, record_events=True),
        vocab=3,
        build=dressed(
            independent(12, prompt=(5, 40), output=(10, 60), gap=(0, 2)), repetition=one_of((2, 0, 4), (5, 3, 2))
        ),
        shows=("repetitions", "preemptions", "events"),
    ),
    Scenario(
        name="pooling",
        seed=2503,
        engine=Engine(max_num_seqs=5, max_num_batched_tokens=48, num_blocks=24, record_events=True),
        build=resets(
            aborts(
                dressed(
                    sharing(24, prefixes=2, prefix=(20, 40), tail=(3, 70), output=(1, 1), gap=(0, 1)),
                    pooling=one_of(True),
                ),
                4,
            ),
            (9, True),
        ),
        shows=("pooled", "prefill_chunks", "aborts", "events"),
    ),
    Scenario(
        name="pooling_async_priority",
        seed=2504,
        engine=Engine(
            policy="priority",
            max_num_seqs=5,
            max_num_batched_tokens=40,
            num_blocks=13,
            async_scheduling=True,
            scheduler_reserve_full_isl=False,
        ),
        build=dressed(
            independent(20, prompt=(10, 120), output=(1, 1), gap=(0, 1)), pooling=one_of(True), priority=mostly_rising
        ),
        shows=("pooled", "prefill_chunks", "preemptions"),
    ),
    Scenario(
        name="grammars_drafts_async",
        seed=2505,
        engine=Engine(
            max_num_seqs=5,
            max_num_batched_tokens=40,
            num_blocks=28,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
            drafts_in_output=True,
        ),
        vocab=VOCAB,
        build=grammars(
            independent(16, prompt=(6, 50), output=(4, 40), gap=(0, 2)),
            share=0.7,
            forbids=(3, 9),
            compiling=(0, 6),
            vocab=VOCAB,
        ),
        acceptance=75,
        shows=("known_drafts", "invalid_drafts", "errors", "accepted_drafts"),
    ),
    Scenario(
        name="events_priority_pressure",
        seed=2506,
        engine=Engine(policy="priority", max_num_seqs=6, max_num_batched_tokens=72, num_blocks=16, record_events=True),
        build=endings(
            dressed(independent(16, prompt=(18, 60), output=(15, 60), gap=(0, 2)), priority=mostly_rising),
            "FINISHED_IGNORED",
            "FINISHED_ERROR",
            "FINISHED_REPETITION",
        ),
        shows=("events", "preemptions", "other_ends"),
    ),
    Scenario(
        name="sessions",
        seed=2507,
        engine=Engine(
            max_num_seqs=4,
            max_num_batched_tokens=40,
            num_blocks=40,
            enable_prefix_caching=False,
            record_events=True,
        ),
        build=sessions(
            dressed(independent(12, prompt=(5, 40), output=(6, 6), gap=(0, 2)), priority=between(0, 0)),
            every=2,
            pieces=(1, 4),
            tokens=(3, 20),
            gap=(2, 14),
        ),
        shows=("fed", "events", "skipped_steps"),
    ),
)
