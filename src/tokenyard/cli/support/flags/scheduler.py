"""Limits and order of the scheduler, and drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro.conf

from tokenyard.cli.support.flags.hints import default, optional
from tokenyard.cli.support.settings import Switch, setting, with_settings
from tokenyard.config import CacheConfig, HashAlgo, SchedulerConfig, SpeculativeMethod

__all__ = ["SchedulerFlags", "SpeculationFlags"]


@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class SchedulerFlags:
    """Limits and order of the scheduler."""

    max_num_seqs: Annotated[
        int | None, optional("N", "as vllm serve: 1024 on GPUs of 70 GiB, A100 aside; else 256")
    ] = None
    """Most requests that run at the same time."""
    max_num_batched_tokens: Annotated[
        int | None, optional("N", "as vllm serve: 8192 on GPUs of 70 GiB, A100 aside; else 2048")
    ] = None
    """Token budget of one step, prefill and decode together."""
    performance_mode: Literal["balanced", "interactivity", "throughput"] = "balanced"
    """throughput doubles these two defaults, as in vLLM."""
    max_model_len: Annotated[int | None, optional("TOKENS", "the model's own limit")] = None
    """Longest prompt and output together."""
    scheduling_policy: str = SchedulerConfig().policy
    """fcfs, priority, another one that `tokenyard workloads` lists, or FILE.py:CLASS."""
    enable_prefix_caching: bool = setting(CacheConfig)
    prefix_caching_hash_algo: HashAlgo = setting(CacheConfig, default=HashAlgo.XXH3_128)
    enable_chunked_prefill: bool = setting(SchedulerConfig)
    long_prefill_token_threshold: int = setting(SchedulerConfig)
    scheduler_reserve_full_isl: bool = setting(SchedulerConfig)
    async_scheduling: Annotated[Switch, default("on, off if drafts come from ngram or draft_model")] = False
    """Schedule a step while the one before runs."""
    no_async_scheduling: Annotated[Switch, default("see --async-scheduling")] = False
    """Schedule a step when the output of the one before is there."""
    watermark: float = setting(CacheConfig)
    disable_chunked_mm_input: bool = setting(SchedulerConfig)
    skip_oversized_prefill: bool = setting(SchedulerConfig)
    running_index_drifts: Annotated[bool, default("as the version does: 0.22 yes, 0.33 no")] = True
    """Where a preemption makes vLLM lose its place, pass over the next running request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationFlags:
    """Drafts, and how many of them are right."""

    speculative_config: Annotated[str | None, optional("JSON", "no speculative decoding")] = None
    """As for vLLM: {"method": "eagle3", "num_speculative_tokens": 3, ...}."""
    spec_method: Annotated[str | None, optional("NAME", "that of --speculative-config")] = None
    """vLLM's short form of its method."""
    spec_tokens: Annotated[int | None, optional("N", "that of --speculative-config")] = None
    """vLLM's short form of its num_speculative_tokens."""
    num_speculative_tokens: Annotated[int | None, optional("N", "no speculative decoding")] = None
    """Drafts per request and step."""
    speculative_method: SpeculativeMethod = SpeculativeMethod.NGRAM
    """Where they come from: eagle and draft_model keep KV slots for them; making them takes no time here."""
    acceptance_rates: Annotated[str, tyro.conf.arg(metavar="P,P,...")] = "0.7"
    """Probability that the draft at each position is right if those before it are; the last counts for the rest."""
