"""Grammars that are compiled while their requests wait."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import between, mostly_rising
from recorder.workloads import aborts, dressed, grammars, independent, pauses, resets, sharing

__all__ = ["STRUCTURED"]

VOCAB = 60
TEXT = independent(20, prompt=(6, 50), output=(4, 40), gap=(0, 2))

STRUCTURED: tuple[Scenario, ...] = (
    Scenario(
        name="grammars",
        seed=2401,
        engine=Engine(max_num_seqs=5, max_num_batched_tokens=72, num_blocks=40),
        vocab=VOCAB,
        build=aborts(grammars(TEXT, share=0.6, forbids=(1, 3), compiling=(0, 12), vocab=VOCAB), 5),
        shows=("grammars", "skipped_steps", "errors", "aborts"),
    ),
    Scenario(
        name="grammars_priority_adapters",
        seed=2402,
        engine=Engine(policy="priority", max_num_seqs=6, max_num_batched_tokens=72, num_blocks=20, max_loras=2),
        vocab=VOCAB,
        build=dressed(
            grammars(
                sharing(22, prefixes=2, prefix=(20, 40), tail=(3, 20), output=(10, 40), gap=(0, 2)),
                share=0.6,
                forbids=(1, 2),
                compiling=(0, 12),
                vocab=VOCAB,
            ),
            priority=mostly_rising,
            lora=between(0, 3),
        ),
        shows=("grammars", "skipped_steps", "errors", "preemptions"),
    ),
    Scenario(
        name="grammars_drafts",
        seed=2403,
        engine=Engine(
            max_num_seqs=6, max_num_batched_tokens=60, num_blocks=32, num_speculative_tokens=4, spec_method="ngram"
        ),
        vocab=VOCAB,
        build=resets(
            pauses(
                grammars(TEXT, share=0.7, forbids=(1, 4), compiling=(0, 10), vocab=VOCAB),
                *((8, 1), (12, 0), (20, 2), (23, 0)),
            ),
            (15, True),
        ),
        acceptance=60,
        shows=("grammars", "skipped_steps", "errors", "drafts"),
    ),
    Scenario(
        name="grammars_async",
        seed=2404,
        engine=Engine(
            policy="priority", max_num_seqs=5, max_num_batched_tokens=60, num_blocks=24, async_scheduling=True
        ),
        vocab=VOCAB,
        build=dressed(
            grammars(TEXT, share=0.7, forbids=(1, 3), compiling=(0, 10), vocab=VOCAB), priority=between(-2, 2)
        ),
        shows=("grammars", "skipped_steps", "errors"),
    ),
    Scenario(
        name="grammars_resets_in_flight",
        seed=2405,
        engine=Engine(
            max_num_seqs=6, max_num_batched_tokens=60, num_blocks=40, num_speculative_tokens=3, spec_method="ngram"
        ),
        vocab=VOCAB,
        build=resets(
            grammars(
                independent(14, prompt=(6, 40), output=(6, 30), gap=(0, 1)),
                share=0.9,
                forbids=(4, 8),
                compiling=(0, 4),
                vocab=VOCAB,
            ),
            *((step, True) for step in range(4, 24, 2)),
            when="mid",
        ),
        shows=("grammars", "errors", "drafts", "resets"),
    ),
)
