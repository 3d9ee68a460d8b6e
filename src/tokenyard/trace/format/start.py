"""The first record of a trace: what ran, under which configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.trace.format.schema import FORMAT_VERSION, TraceStart
from tokenyard.version import __version__

__all__ = ["describe_run"]


def describe_run(
    scheduler: SchedulerConfig,
    cache: CacheConfig,
    *,
    host: str,
    ts: float = 0.0,
    model: str | None = None,
    gpu: str | None = None,
    bytes_per_block: int | None = None,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
) -> TraceStart:
    """A ``trace_start`` record for a scheduler of ours.

    ``host`` is ``replay``, ``engine`` or ``vllm``; ``sections`` are further parts of the configuration (the
    workload, the latency model) and stand beside ``scheduler`` and ``cache``.
    """
    config: dict[str, Any] = {"scheduler": asdict(scheduler), "cache": asdict(cache)}
    config.update({name: dict(section) for name, section in (sections or {}).items()})
    return TraceStart(
        format_version=FORMAT_VERSION,
        ts=ts,
        policy=scheduler.policy,
        tokenyard_version=__version__,
        host=host,
        model=model,
        gpu=gpu,
        block_size=cache.tokens_per_block,
        bytes_per_block=bytes_per_block,
        config=config,
    )
