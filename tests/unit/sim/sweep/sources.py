"""A small source whose variants are replayed in a blink, in any process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_maker
from tokenyard.questions.sweeping.measuring import PreparedVariant
from tokenyard.questions.sweeping.rows import Settings
from tokenyard.sim.settings import DecodeSide, KVLink, ReplaySettings
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens


def workload(number: int = 40, *, tokens: int = 10, every: float = 0.5, patience: float | None = None) -> Workload:
    """Requests at a steady pace."""
    return Workload(
        "steady",
        [
            WorkloadRequest(
                request_id=f"r{i}",
                prompt=StreamTokens.unique(i, 16 + i % 5),
                max_tokens=tokens + i % 3,
                arrival_time=i * every,
                patience=patience,
            )
            for i in range(number)
        ],
    )


@dataclass
class Steady:
    """Varies ``max_num_seqs`` and ``max_num_batched_tokens``; a step takes 0.1 s."""

    requests: Workload
    apart: bool = False
    """Prefill on one engine, decode on another."""
    dies_once_at: Path | None = None
    """Where a process leaves a mark and dies, unless the mark is there."""

    def prepared(self, settings: Settings) -> PreparedVariant:
        if self.dies_once_at is not None and settings.get("max_num_seqs") == 3 and not self.dies_once_at.exists():
            self.dies_once_at.touch()
            os._exit(9)
        if settings.get("max_num_seqs") == 0:
            raise ConfigError("max_num_seqs", 0, "give more")
        config = SchedulerConfig(
            **{"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256, **settings},  # type: ignore[arg-type]
        )
        replays = ReplaySettings(config, CacheConfig(num_gpu_blocks=400), ConstantLatency(seconds=0.1))
        seats = config.max_num_seqs
        decode = DecodeSide(replays, KVLink(1 << 20, 10.0)) if self.apart else None
        gpus = 1 if seats < 4 else 2
        return PreparedVariant(self.requests, replays, policy_maker("fcfs", "policy"), "h100", gpus, decode=decode)
