"""Limits and order of the scheduler, and speculative decoding."""

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
    """Largest number of requests that run at the same time."""
    max_num_batched_tokens: Annotated[
        int | None, optional("N", "as vllm serve: 8192 on GPUs of 70 GiB, A100 aside, 16384 of 160 GiB; else 2048")
    ] = None
    """Largest number of tokens per step, prefill and decode together."""
    performance_mode: Literal["balanced", "interactivity", "throughput"] = "balanced"
    """throughput doubles these two defaults, as in vLLM."""
    max_model_len: Annotated[int | None, optional("TOKENS", "the model's own limit")] = None
    """Largest number of tokens of a request, prompt and output together."""
    scheduling_policy: str = SchedulerConfig().policy
    """fcfs, priority, another one that `tokenyard workloads` lists, or FILE.py:CLASS."""
    enable_prefix_caching: bool = setting(CacheConfig)
    prefix_caching_hash_algo: HashAlgo = setting(CacheConfig, default=HashAlgo.XXH3_128)
    enable_chunked_prefill: bool = setting(SchedulerConfig)
    long_prefill_token_threshold: int = setting(SchedulerConfig)
    scheduler_reserve_full_isl: bool = setting(SchedulerConfig)
    async_scheduling: Annotated[Switch, default("on; in 0.22 off if drafts come from ngram or draft_model")] = False
    """Async scheduling: schedule a step while the previous one runs."""
    no_async_scheduling: Annotated[Switch, default("see --async-scheduling")] = False
    """No async scheduling: schedule a step after the previous one ended."""
    watermark: float = setting(CacheConfig)
    disable_chunked_mm_input: bool = setting(SchedulerConfig)
    skip_oversized_prefill: bool = setting(SchedulerConfig)
    running_index_drifts: Annotated[bool, default("as the version does: 0.22 yes, 0.33 no")] = True
    """Skip the next running request where vLLM's loop does so after a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationFlags:
    """Speculative decoding, and how many draft tokens are accepted."""

    speculative_config: Annotated[str | None, optional("JSON", "no speculative decoding")] = None
    """As for vLLM: {"method": "eagle3", "num_speculative_tokens": 3, ...}."""
    spec_method: Annotated[str | None, optional("NAME", "that of --speculative-config")] = None
    """vLLM's short form of its method."""
    spec_tokens: Annotated[int | None, optional("N", "that of --speculative-config")] = None
    """vLLM's short form of its num_speculative_tokens."""
    num_speculative_tokens: Annotated[int | None, optional("N", "no speculative decoding")] = None
    """Draft tokens per request and step."""
    speculative_method: SpeculativeMethod = SpeculativeMethod.NGRAM
    """Source of the draft tokens: eagle and draft_model use KV slots for them; drafting takes no time in a replay."""
    acceptance_rates: Annotated[str, tyro.conf.arg(metavar="P,P,...")] = "0.7"
    """Probability that each position's draft token is accepted if those before it are; the last holds for the rest."""
