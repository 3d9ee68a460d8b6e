"""The first record of a trace: what ran, under which configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from tokenyard.config import CacheConfig, SchedulerConfig, hand_made_defaults
from tokenyard.trace.format.deployment import SECTION, Assumption, Deployment
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
    policy: str | None = None,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
) -> TraceStart:
    """A ``trace_start`` record for a scheduler of ours.

    ``host`` is ``replay``, ``engine`` or ``vllm``; ``policy`` names the one that decides, where it is another than the
    configuration names; ``sections`` are further parts of the configuration (the
    workload, the latency model) and stand beside ``scheduler`` and ``cache``. Without any the configuration counts as
    made by hand, and the header says which settings nobody chose.
    """
    if sections is None:
        sections = {SECTION: msgspec.to_builtins(_made_by_hand(scheduler, cache))}
    policy = scheduler.policy if policy is None else policy
    config: dict[str, Any] = {"scheduler": asdict(scheduler) | {"policy": policy}, "cache": asdict(cache)}
    config.update({name: dict(section) for name, section in sections.items()})
    return TraceStart(
        format_version=FORMAT_VERSION,
        ts=ts,
        policy=policy,
        tokenyard_version=__version__,
        host=host,
        model=model,
        gpu=gpu,
        block_size=cache.tokens_per_block,
        bytes_per_block=bytes_per_block,
        config=config,
    )


def _made_by_hand(scheduler: SchedulerConfig, cache: CacheConfig) -> Deployment:
    """What two configurations alone tell of a deployment, and what is assumed in them."""
    version = scheduler.profile.vllm_version
    assumed = [
        Assumption(name=name, value=version if name == "profile" else getattr(scheduler, name), why=why)
        for name, why in hand_made_defaults(scheduler).items()
    ]
    return Deployment(
        kv_tokens=cache.num_gpu_blocks * cache.tokens_per_block,
        num_gpu_blocks=cache.num_gpu_blocks,
        block_size=cache.tokens_per_block,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_num_seqs=scheduler.max_num_seqs,
        max_model_len=scheduler.max_model_len,
        async_scheduling=scheduler.async_scheduling,
        pipeline_parallel_size=scheduler.pipeline_parallel_size,
        vllm_version=version,
        assumed=assumed,
    )
