"""Blocks spread over several devices (context parallelism), and encoder-decoder models."""

from __future__ import annotations

from recorder.plan import Engine, Group, Scenario
from recorder.scenarios.common import mostly_rising
from recorder.workloads import aborts, dressed, independent, sharing, spoken

__all__ = ["RANKS"]

FULL, CROSS = Group(), Group(kind="cross")
PHRASES = independent(22, prompt=(3, 14), output=(10, 70), gap=(0, 2))

RANKS: tuple[Scenario, ...] = (
    Scenario(
        name="context_parallel_decode",
        seed=2701,
        engine=Engine(max_num_batched_tokens=90, num_blocks=24, decode_context_parallel_size=2),
        build=aborts(
            sharing(22, prefixes=3, prefix=(60, 110), tail=(3, 30), output=(20, 70), gap=(0, 2), repeats=0.3), 6
        ),
        shows=("hit_tokens", "preemptions"),
    ),
    Scenario(
        name="context_parallel_both_async",
        seed=2702,
        engine=Engine(
            max_num_batched_tokens=90,
            num_blocks=30,
            block_size=8,
            async_scheduling=True,
            num_speculative_tokens=2,
            spec_method="eagle",
            decode_context_parallel_size=2,
            prefill_context_parallel_size=2,
        ),
        build=sharing(22, prefixes=3, prefix=(60, 110), tail=(3, 30), output=(20, 70), gap=(0, 2), repeats=0.3),
        shows=("hit_tokens", "drafts"),
    ),
    Scenario(
        name="cross_attention",
        seed=2703,
        engine=Engine(
            max_num_batched_tokens=256,
            num_blocks=44,
            enable_prefix_caching=False,
            groups=(FULL, CROSS),
            max_num_encoder_input_tokens=90,
            encoder_cache_size=90,
            enable_chunked_prefill=False,
            disable_chunked_mm_input=True,
            encoder_decoder=True,
        ),
        build=aborts(spoken(PHRASES, length=(20, 60), share=0.9), 5),
        shows=("encoder_inputs", "preemptions", "aborts"),
    ),
    Scenario(
        name="cross_attention_mixed_blocks_priority",
        seed=2704,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=256,
            num_blocks=32,
            enable_prefix_caching=False,
            groups=(Group(kind="cross", block_size=48), FULL),
            max_num_encoder_input_tokens=120,
            encoder_cache_size=100,
            async_scheduling=True,
            enable_chunked_prefill=False,
            disable_chunked_mm_input=True,
            encoder_decoder=True,
        ),
        build=dressed(spoken(PHRASES, length=(30, 90), share=1.0), priority=mostly_rising),
        shows=("encoder_inputs", "preemptions"),
    ),
)
