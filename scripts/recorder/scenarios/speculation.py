"""Draft tokens: proposed, cut to the budget, verified, rejected, dropped; one step at a time."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import SHARED_STORM, STORM, between, mostly_rising, one_of
from recorder.workloads import aborts, conversations, dressed, independent, pauses, resets, sharing

__all__ = ["SPECULATION"]

SPECULATION: tuple[Scenario, ...] = (
    Scenario(
        name="drafts_tight_budget",
        seed=2001,
        engine=Engine(max_num_seqs=9, max_num_batched_tokens=22, num_speculative_tokens=5, spec_method="ngram"),
        build=independent(16, prompt=(12, 70), output=(15, 45), gap=(0, 2)),
        acceptance=70,
        shows=("drafts", "accepted_drafts", "left_out", "prefill_chunks"),
    ),
    Scenario(
        name="drafts_pressure_priority",
        seed=2002,
        engine=Engine(
            policy="priority",
            max_num_seqs=10,
            max_num_batched_tokens=60,
            num_blocks=30,
            num_speculative_tokens=4,
            spec_method="ngram",
        ),
        build=aborts(
            dressed(
                STORM,
                priority=mostly_rising,
                stop_token_ids=one_of((), (3, 8), (11,)),
                eos=one_of(None, 5),
                min_tokens=one_of(0, 7, 20),
            ),
            8,
        ),
        vocab=90,
        acceptance=75,
        shows=("drafts", "preemptions", "rollbacks", "stops", "stop_tokens"),
    ),
    Scenario(
        name="drafts_stops_in_the_middle",
        seed=2003,
        engine=Engine(max_num_batched_tokens=96, num_blocks=70, num_speculative_tokens=6, spec_method="ngram"),
        build=dressed(
            independent(26, prompt=(5, 60), output=(20, 60), gap=(0, 1)),
            eos=one_of(None, 3),
            stop_token_ids=one_of((), (3, 8), (11,)),
            min_tokens=one_of(0, 3, 9),
        ),
        vocab=24,
        acceptance=85,
        shows=("stops", "stop_tokens", "accepted_drafts"),
    ),
    Scenario(
        name="eagle_shared_evicted",
        seed=2004,
        engine=Engine(
            max_num_seqs=6, max_num_batched_tokens=88, num_blocks=32, num_speculative_tokens=3, spec_method="eagle"
        ),
        build=sharing(26, prefixes=3, prefix=(32, 96), tail=(3, 40), output=(6, 40), gap=(0, 2), repeats=0.4),
        shows=("drafts", "hit_tokens", "queued_steps"),
    ),
    Scenario(
        name="eagle_conversations_priority",
        seed=2005,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=72,
            max_model_len=400,
            num_blocks=46,
            num_speculative_tokens=2,
            spec_method="eagle",
            long_prefill_token_threshold=30,
        ),
        build=resets(
            dressed(
                conversations(8, turns=(2, 4), system=40, user=(8, 40), output=(10, 40), think=(1, 8), gap=(0, 2)),
                priority=between(0, 2),
            ),
            (20, True),
            (45, False),
        ),
        acceptance=50,
        shows=("drafts", "hit_tokens", "preemptions", "resets"),
    ),
    Scenario(
        name="draft_model_pressure",
        seed=2006,
        engine=Engine(
            max_num_seqs=9,
            max_num_batched_tokens=64,
            num_blocks=60,
            block_size=8,
            num_speculative_tokens=7,
            spec_method="draft_model",
        ),
        build=pauses(aborts(SHARED_STORM, 8), (14, 1), (18, 0), (30, 2), (33, 0)),
        acceptance=80,
        shows=("drafts", "preemptions", "resumed", "aborts"),
    ),
    Scenario(
        name="drafts_model_length_reached",
        seed=2007,
        engine=Engine(
            max_num_batched_tokens=50,
            max_model_len=72,
            num_blocks=50,
            num_speculative_tokens=5,
            spec_method="draft_model",
        ),
        build=independent(14, prompt=(40, 71), output=(8, 60), gap=(0, 2), cap=False),
        acceptance=80,
        shows=("drafts", "lengths"),
    ),
    Scenario(
        name="drafts_whole_prompts_cache_off",
        seed=2008,
        engine=Engine(
            max_num_batched_tokens=256,
            num_blocks=32,
            enable_chunked_prefill=False,
            enable_prefix_caching=False,
            num_speculative_tokens=3,
            spec_method="ngram",
        ),
        build=resets(independent(16, prompt=(18, 70), output=(30, 80), gap=(0, 2)), (25, True), when="mid"),
        shows=("drafts", "preemptions", "resets"),
    ),
)
