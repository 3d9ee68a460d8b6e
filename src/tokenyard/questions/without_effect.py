"""Settings that have no effect as long as others stand as they do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from tokenyard.questions.scenario import Scenario
from tokenyard.workload.load import GENERATORS

_NO_GPU_IN = ("constant:", "fitted:")
_VARIED = re.compile(r"(?:^|[,\s])(\w+)=")


class Asked(msgspec.Struct, frozen=True):
    """A scenario, and what a question does with it."""

    scenario: Scenario
    question: str
    """``run``, ``compare``, ``split``, ``plan``, ``sweep`` or ``upgrade``."""
    varied: Collection[str] = ()
    """Settings of which a plan or a sweep tries several values."""
    varies_any: bool = False
    """Whether a file of variants may vary every setting."""

    def varies(self, names: Iterable[str]) -> bool:
        """Whether several values of one of the settings are tried."""
        return any(self.varies_any or name in self.varied for name in names)

    @property
    def has_drafts(self) -> bool:
        """Whether there is speculative decoding."""
        given = self.scenario.speculation
        return (given.num_speculative_tokens, given.speculative_config, given.spec_tokens) != (None, None, None)

    @property
    def may_split(self) -> bool:
        """Whether there may be a split of prefill and decode with engines of a number of its own."""
        return self.scenario.split_settings.split is not None or self.varies(["split"])


class _Rule(msgspec.Struct, frozen=True):
    """When some settings mean nothing to some questions."""

    questions: str
    settings: tuple[str, ...]
    when: Callable[[Asked], bool]
    because: str
    """Settings are marked (``§max_num_seqs``)."""
    unless_varied: tuple[str, ...] = ()
    """Settings of which a plan or a sweep may try values with which these do mean something."""


_ALL = "run compare split plan sweep upgrade"
_RULES = (
    _Rule(
        _ALL,
        ("columns", "time_unit", "stamped", "prefixes", "turns_follow", "max_bad_lines"),
        lambda asked: asked.scenario.workload in GENERATORS,
        "it is for logs of services, and the workload is built in",
    ),
    _Rule(
        "run compare plan sweep",
        ("speculative_method", "acceptance_rates"),
        lambda asked: not asked.has_drafts,
        "without §num_speculative_tokens there are no drafts",
        ("num_speculative_tokens", "speculative_config", "spec_tokens"),
    ),
    _Rule(
        "run compare plan sweep",
        ("kv_offloading_backend",),
        lambda asked: asked.scenario.transfer.kv_offloading_size is None,
        "without §kv_offloading_size nothing is offloaded",
        ("kv_offloading_size",),
    ),
    _Rule(
        _ALL,
        ("router",),
        lambda asked: (
            asked.scenario.parallel.data_parallel_size == 1
            and not asked.scenario.parallel.has_replicas
            and not asked.may_split
        ),
        "without §data_parallel_size or §replicas there is one engine",
        ("data_parallel_size", "replicas", "autoscale"),
    ),
    _Rule(
        "plan sweep",
        ("kv_link_gb_per_s",),
        lambda asked: not asked.may_split,
        "without §split every engine does both, prefill and decode",
    ),
    _Rule(
        _ALL,
        ("startup", "scale_target"),
        lambda asked: asked.scenario.parallel.autoscale is None,
        "without §autoscale no replica comes or goes",
        ("autoscale",),
    ),
    _Rule(
        _ALL,
        ("gpu_memory_utilization",),
        lambda asked: asked.scenario.hardware.num_gpu_blocks_override is not None,
        "§num_gpu_blocks_override says how many blocks there are",
    ),
    _Rule(
        _ALL,
        ("gpu",),
        lambda asked: (
            asked.scenario.hardware.num_gpu_blocks_override is not None
            and asked.scenario.hardware.latency.startswith(_NO_GPU_IN)
        ),
        "blocks and step times are given; it only names the run",
    ),
    _Rule(
        _ALL,
        ("prefix_caching_hash_algo",),
        lambda asked: not asked.scenario.scheduler.enable_prefix_caching,
        "without prefix caching nothing is hashed",
        ("enable_prefix_caching",),
    ),
    _Rule(
        _ALL,
        ("skip_oversized_prefill",),
        lambda asked: asked.scenario.scheduler.enable_chunked_prefill,
        "with chunked prefill no prompt is too long for a step",
        ("enable_chunked_prefill",),
    ),
    _Rule(
        "run split",
        ("record_requests", "max_ids_per_step"),
        lambda asked: asked.scenario.trace.trace is None and not os.environ.get("SCHED_TRACE_PATH"),
        "without §trace nothing is recorded",
    ),
)


def without_effect(asked: Asked, given: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The settings of those ``given`` that will not be heeded, each with the reason, in which settings are marked."""
    names = list(given)
    for rule in _RULES:
        ignored = [name for name in rule.settings if name in names]
        is_asked = asked.question in rule.questions.split() and not asked.varies(rule.unless_varied)
        if ignored and is_asked and rule.when(asked):
            yield from ((name, rule.because) for name in ignored)


def varied_in(texts: Iterable[str]) -> set[str]:
    """Settings that texts vary, which are written as for ``--set``: ``max_num_seqs=64,128,gpu=h200``."""
    return {name for text in texts for name in _VARIED.findall(text.replace("-", "_"))}
