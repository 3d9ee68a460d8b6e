"""The first record of a trace: what ran, under which configuration, and for which deployment it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import prod
from typing import Any

import msgspec

from tokenyard.arguments import given_kind, suggests_keywords
from tokenyard.core.config import CacheConfig, SchedulerConfig, hand_made_defaults
from tokenyard.trace.schema import FORMAT_VERSION, TraceStart
from tokenyard.version import __version__

# ---------------------------------------------------------------------------------------------------------------------
# What a replay was: the deployment as it was understood, and everything that was assumed or ignored.
#
# It is the section ``deployment`` of a trace's configuration, and part of every report's header. None where it
# was not said.

SECTION = "deployment"
"""Name of the section in the configuration of ``trace_start``."""


ACCEPTANCE = "acceptance-rates"
"""Name of the assumption of how many drafts are right."""


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not given, and what was taken."""

    name: str
    """The flag, without dashes, or what else it is."""
    value: Any
    why: str

    def __str__(self) -> str:
        value = f"{self.value:,}" if isinstance(self.value, int) and not isinstance(self.value, bool) else self.value
        return f"{self.name} {value}: {self.why}"


class DeploymentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, on what, and how far that is known."""

    kv_tokens: int | None = None
    """Tokens that the KV cache holds, as vLLM logs them (``GPU KV cache size``)."""
    num_gpu_blocks: int | None = None
    memory_num_gpu_blocks: int | None = None
    """Blocks that the engine would take of its memory, where ``num_gpu_blocks`` were given by hand."""
    block_size: int | None = None
    """Tokens per block."""
    kv_dtype: str | None = None
    kv_gib: float | None = None
    """KV cache on each GPU, in GiB."""
    kv_groups: list[str] = []
    """Layers that share block tables, in words."""
    weight_gib: float | None = None
    """Weights on each GPU, in GiB."""
    weight_dtype: str | None = None
    """Number format of most weights."""
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    async_scheduling: bool | None = None
    vllm_version: str | None = None
    """Version of vLLM whose defaults were taken."""
    step_time: str | None = None
    """Where step times come from: as ``--latency`` names it."""
    step_time_error: str | None = None
    """The error of the step times, as far as it is known, in words."""
    assumed: list[Assumption] = []
    """What was not given, and what was taken for it."""
    used: list[str] = []
    """Flags of ``vllm serve`` that count here."""
    without_effect: list[str] = []
    """Flags that change nothing in a replay, with the reason."""
    ignored: list[str] = []
    """What would change something, and is not modelled, with what it would change."""

    @property
    def num_gpus(self) -> int | None:
        """GPUs of all its engines; None where it does not say."""
        if self.num_gpu_blocks is None:
            return None
        return prod(
            each or 1 for each in (self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size)
        )


def deployment_of(config: dict[str, Any] | None) -> DeploymentHeader:
    """The section of a configuration; an empty one where there is none, or one that cannot be read."""
    try:
        return msgspec.convert((config or {}).get(SECTION, {}), DeploymentHeader)
    except msgspec.ValidationError:
        return DeploymentHeader()


# ---------------------------------------------------------------------------------------------------------------------
# The settings of a ``trace_start`` record, flat: ``scheduler.max_num_seqs`` -> 128.

_OF_THE_RUN = ("policy", "host", "model", "gpu", "block_size", "tokenyard_version", "every_n", "warmup")


def settings_of(start: TraceStart) -> dict[str, Any]:
    """Name -> value: the fields about the run, then every setting of its configuration.

    A setting is named by its sections with dots between them; those of the deployment stand alone.
    """
    return {name: getattr(start, name) for name in _OF_THE_RUN} | dict(_flat(start.config or {}))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, prefix + ("" if name == SECTION else f"{name}."))
        else:
            yield prefix + name, value


# ---------------------------------------------------------------------------------------------------------------------
# The first record of a trace: what ran, under which configuration.


@suggests_keywords()
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
    clock_zero: float | None = None,
    clock_speed: float | None = None,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
) -> TraceStart:
    """A ``trace_start`` record for a scheduler of ours.

    ``host`` is ``replay``, ``engine``, ``emulate`` or ``vllm``; ``policy`` names the one that decides, where it is
    another than the configuration names; ``clock_zero`` and ``clock_speed`` say of a clock that is not Unix time how it
    follows the wall's; ``sections`` are further parts of the configuration (the workload, the latency model) and stand
    beside ``scheduler`` and ``cache``. Without any the configuration counts as made by hand, and the header says which
    settings were not chosen.
    """
    given_kind("scheduler", scheduler, SchedulerConfig)
    given_kind("cache", cache, CacheConfig)
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
        clock_zero=clock_zero,
        clock_speed=clock_speed,
    )


def _made_by_hand(scheduler: SchedulerConfig, cache: CacheConfig) -> DeploymentHeader:
    """What two configurations alone tell of a deployment, and what is assumed in them."""
    version = scheduler.profile.vllm_version
    assumed = [
        Assumption(name=name, value=version if name == "profile" else getattr(scheduler, name), why=why)
        for name, why in hand_made_defaults(scheduler).items()
    ]
    return DeploymentHeader(
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
