"""Stops, lengths and aborts."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import SHARED_STORM, STORM, mostly_rising, one_of
from recorder.workloads import aborts, dressed, independent

__all__ = ["ENDINGS"]

ENDINGS: tuple[Scenario, ...] = (
    Scenario(
        name="stops",
        seed=1501,
        engine=Engine(max_num_batched_tokens=112, num_blocks=60),
        vocab=28,
        build=dressed(
            independent(34, prompt=(5, 80), output=(1, 70), gap=(0, 1)),
            eos=one_of(None, 2, 9),
            stop_token_ids=lambda rng, _: tuple(sorted(rng.sample(range(28), rng.randint(0, 3)))),
        ),
        shows=("stops", "stop_tokens", "lengths"),
    ),
    Scenario(
        name="stops_after_min_tokens",
        seed=1502,
        engine=Engine(max_num_batched_tokens=112, num_blocks=40),
        vocab=14,
        build=dressed(
            independent(26, prompt=(5, 60), output=(20, 60), gap=(0, 1)),
            eos=one_of(None, 3),
            stop_token_ids=one_of((), (3, 8), (11,)),
            min_tokens=one_of(0, 1, 7, 20),
        ),
        shows=("stops", "stop_tokens", "lengths"),
    ),
    Scenario(
        name="model_length_reached",
        seed=1503,
        engine=Engine(max_num_batched_tokens=72, max_model_len=96, num_blocks=40),
        build=independent(18, prompt=(50, 95), output=(10, 80), gap=(0, 3), cap=False),
        shows=("lengths",),
    ),
    Scenario(
        name="aborts",
        seed=1504,
        engine=Engine(max_num_batched_tokens=88, num_blocks=33),
        build=aborts(SHARED_STORM, 20),
        shows=("aborts", "late_aborts", "preemptions"),
    ),
    Scenario(
        name="aborts_priority",
        seed=1505,
        engine=Engine(policy="priority", max_num_seqs=9, max_num_batched_tokens=104, num_blocks=31),
        build=aborts(dressed(STORM, priority=mostly_rising), 16),
        shows=("aborts", "preemptions"),
    ),
    Scenario(
        name="aborts_of_prefills",
        seed=1506,
        engine=Engine(max_num_batched_tokens=24, num_blocks=40),
        build=aborts(independent(20, prompt=(60, 180), output=(3, 15), gap=(0, 4)), 14, within=(0, 8)),
        shows=("aborts", "prefill_chunks"),
    ),
)
