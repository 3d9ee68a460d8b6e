"""The PRIORITY policy: order, ties, victims."""

from __future__ import annotations

from recorder.plan import Engine, Scenario
from recorder.scenarios.common import SHARED_STORM, STORM, between, mostly_rising
from recorder.workloads import dressed, independent

__all__ = ["PRIORITY"]

PRIORITY: tuple[Scenario, ...] = (
    Scenario(
        name="priority",
        seed=1301,
        engine=Engine(policy="priority", max_num_seqs=5, max_num_batched_tokens=112),
        build=dressed(independent(24, prompt=(5, 90), output=(5, 45)), priority=between(-4, 4)),
        shows=("queued_steps",),
    ),
    Scenario(
        name="priority_ties",
        seed=1302,
        engine=Engine(policy="priority", max_num_batched_tokens=120, num_blocks=27),
        build=dressed(
            independent(26, prompt=(15, 55), output=(25, 90), gap=(0, 1)),
            priority=lambda _, index: index % 2,
            arrival_time=lambda _, index: float(index // 5),
        ),
        shows=("preemptions",),
    ),
    Scenario(
        name="priority_rollback",
        seed=1303,
        engine=Engine(policy="priority", max_num_seqs=11, max_num_batched_tokens=120, num_blocks=28),
        build=dressed(independent(34, prompt=(14, 55), output=(35, 130), gap=(0, 3)), priority=mostly_rising),
        shows=("rollbacks", "resumed"),
    ),
    Scenario(
        name="priority_rollback_shared",
        seed=1304,
        engine=Engine(policy="priority", max_num_seqs=11, max_num_batched_tokens=140, num_blocks=34),
        build=dressed(SHARED_STORM, priority=mostly_rising),
        shows=("rollbacks", "hit_tokens"),
    ),
    Scenario(
        name="priority_whole_prompts",
        seed=1305,
        engine=Engine(policy="priority", max_num_batched_tokens=256, num_blocks=34, enable_chunked_prefill=False),
        build=dressed(STORM, priority=between(0, 3)),
        shows=("preemptions",),
    ),
)
