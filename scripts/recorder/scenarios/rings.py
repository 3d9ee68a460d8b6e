"""Layers that keep a request's last tokens in one block, beside full attention, windows and states."""

from __future__ import annotations

from recorder.plan import Engine, Group, Scenario
from recorder.scenarios.common import mostly_rising
from recorder.workloads import aborts, conversations, dressed, resets, sharing

__all__ = ["RINGS"]

FULL, STATE, RING = Group(), Group(kind="mamba"), Group(kind="ring", block_size=4)
SHARED = sharing(24, prefixes=3, prefix=(40, 110), tail=(3, 40), output=(10, 50), gap=(0, 2), repeats=0.3)

RINGS: tuple[Scenario, ...] = (
    Scenario(
        name="ring_beside_full",
        seed=3401,
        engine=Engine(max_num_batched_tokens=72, num_blocks=34, groups=(FULL, Group(kind="ring"))),
        build=resets(aborts(SHARED, 6), (30, True)),
        shows=("hit_tokens", "preemptions", "aborts"),
    ),
    Scenario(
        name="ring_beside_states_async",
        seed=3402,
        engine=Engine(
            max_num_batched_tokens=72,
            num_blocks=80,
            async_scheduling=True,
            groups=(STATE, STATE, FULL, RING),
            mamba_cache_mode="align",
        ),
        build=conversations(9, turns=(2, 4), system=40, user=(6, 30), output=(8, 30), think=(1, 6)),
        shows=("hit_tokens", "null_blocks", "zeroed_blocks"),
    ),
    Scenario(
        name="ring_larger_than_blocks_eagle_priority",
        seed=3403,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=80,
            num_blocks=90,
            async_scheduling=True,
            num_speculative_tokens=3,
            spec_method="eagle",
            groups=(FULL, Group(kind="ring", block_size=32), Group(kind="swa", window=40), Group(eagle=True), RING),
        ),
        build=dressed(SHARED, priority=mostly_rising),
        acceptance=75,
        shows=("hit_tokens", "drafts", "null_blocks", "preemptions"),
    ),
)
"""Versions from 0.29 have such layers."""
