"""Prompts that share prefixes, and what keeps them from it."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import between, one_of
from recorder.workloads import conversations, dressed, resets, sharing

__all__ = ["PREFIXES"]

PREFIXES: tuple[Scenario, ...] = (
    Scenario(
        name="prefixes",
        seed=1401,
        engine=Engine(max_num_seqs=9, max_num_batched_tokens=208),
        build=sharing(28, prefixes=3, prefix=(35, 110), tail=(3, 50), output=(4, 40)),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="prefixes_evicted",
        seed=1402,
        engine=Engine(max_num_seqs=4, max_num_batched_tokens=112, num_blocks=34),
        build=sharing(36, prefixes=6, prefix=(35, 110), tail=(3, 50), output=(4, 25), gap=(0, 4)),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="prefixes_end_on_blocks",
        seed=1403,
        engine=Engine(max_num_batched_tokens=64, num_blocks=100),
        build=sharing(26, prefixes=2, prefix=(48, 48), tail=(16, 16), output=(2, 25), repeats=0.6),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="conversations",
        seed=1404,
        engine=Engine(max_num_batched_tokens=192, max_model_len=640),
        build=conversations(8, turns=(2, 5), system=50, user=(4, 35), output=(4, 35), think=(1, 14)),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="conversations_evicted",
        seed=1405,
        engine=Engine(max_num_seqs=5, max_num_batched_tokens=112, max_model_len=640, num_blocks=44),
        build=conversations(11, turns=(2, 5), system=40, user=(8, 50), output=(4, 40), think=(1, 12)),
        shows=("hit_tokens", "queued_steps"),
    ),
    Scenario(
        name="conversations_priority",
        seed=1406,
        engine=Engine(policy="priority", max_num_batched_tokens=112, max_model_len=512, num_blocks=44),
        build=dressed(
            conversations(11, turns=(2, 4), system=40, user=(8, 40), output=(15, 50), think=(1, 8), gap=(0, 2)),
            priority=between(0, 2),
        ),
        shows=("hit_tokens", "preemptions"),
    ),
    Scenario(
        name="cache_salts",
        seed=1407,
        engine=Engine(max_num_batched_tokens=224, num_blocks=160),
        build=dressed(
            sharing(30, prefixes=2, prefix=(35, 90), tail=(3, 30), output=(4, 30), repeats=0.4),
            cache_salt=one_of(None, "north", "south"),
        ),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="cache_not_read",
        seed=1408,
        engine=Engine(max_num_batched_tokens=208, num_blocks=70),
        build=dressed(
            sharing(28, prefixes=2, prefix=(35, 90), tail=(3, 30), output=(4, 30), repeats=0.4),
            skip_reading_prefix_cache=one_of(True, False, False),
        ),
        shows=("hit_tokens",),
    ),
    Scenario(
        name="cache_resets",
        seed=1409,
        engine=Engine(max_num_batched_tokens=112, num_blocks=56),
        build=resets(
            sharing(26, prefixes=3, prefix=(35, 90), tail=(3, 40), output=(8, 45)),
            *((9, False), (17, True), (33, True), (34, True), (52, False), (60, True)),
        ),
        shows=("hit_tokens", "resets", "refused_resets"),
    ),
)
