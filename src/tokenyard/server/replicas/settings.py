"""What a deployment file says under ``args``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokenyard.errors import ConfigError, shown
from tokenyard.server.openai.assembly import FrontSettings
from tokenyard.sim.parallel.routers.named import ROUTERS

__all__ = ["ReplicaSettings", "read_settings"]

_NEEDS_REPORTS = "vllm"
"""Balances by what engines report every few milliseconds, which replicas do not."""


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one application: a model, how often it runs, and who gets a request."""

    model: str
    """Folder of a Hugging Face checkpoint, on every machine; ``demo`` makes a tiny one."""
    num_replicas: int = 2
    """Engines, each with its own memory."""
    num_cpus: float = 1.0
    """Processors that Ray sets aside for each."""
    num_gpus: float = 0.0
    """GPUs that Ray sets aside for each."""
    engine: dict[str, Any] = {}
    """Settings of each engine, by the names of ``load_engine``, which are vLLM's flags."""
    front: FrontSettings = FrontSettings()
    """Settings of what stands before each engine, by the names of the flags of ``tokenyard serve``."""
    served_model_name: list[str] = []
    """Names by which clients call the model; answers say the first."""
    router: str = "prefix-affinity"
    """``prefix-affinity``, ``least-loaded``, ``round-robin``, or FILE.py:CLASS, as for ``tokenyard run --router``."""
    most_ahead: int = 8
    """``prefix-affinity`` passes a replica over that has so many requests more than the one with the fewest."""
    most_remembered: int = 200_000
    """Blocks of 64 bytes of prompts that the router remembers, the newest ones."""
    health_check_period_s: float = 10.0
    """Seconds between two questions of Ray's whether a replica is well."""
    trace: str | None = None
    """Folder for a trace of each replica."""

    def __post_init__(self) -> None:
        for name in ("num_replicas", "most_ahead", "most_remembered"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "give a whole number from 1 on")
        for name in ("num_cpus", "num_gpus"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(name, getattr(self, name), "give a number from 0 on")
        names = [name for name in ROUTERS if name != _NEEDS_REPORTS]
        if ":" not in self.router and self.router not in names:
            raise ConfigError("router", self.router, f"use one of: {', '.join(names)}; or FILE.py:CLASS")

    @property
    def names(self) -> list[str]:
        """By which clients call the model."""
        return self.served_model_name or [self.model]


def read_settings(args: Mapping[str, Any]) -> ReplicaSettings:
    """From the ``args`` of a deployment file. Raises ConfigError."""
    try:
        return msgspec.convert(dict(args), ReplicaSettings)
    except msgspec.ValidationError as error:
        raise ConfigError("args", shown(dict(args)), str(error)) from None
