"""Flags that have no effect as long as others stand as they do: a user who types one is told so, in a line."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenyard.cli.support.flag_names import flag, setting_names
from tokenyard.cli.support.flags import (
    CompareCommand,
    PlanCommand,
    RunCommand,
    SplitCommand,
    SweepCommand,
    UpgradeCommand,
)
from tokenyard.deploy.settings import SpeculationSettings

if TYPE_CHECKING:
    from tokenyard.cli.support.flags import Command


class _Rule(NamedTuple):
    """When some flags of some commands mean nothing."""

    commands: tuple[type, ...]
    flags: tuple[str, ...]
    when: Callable[[Any], bool]
    because: str
    unless_varied: tuple[str, ...] = ()
    """Settings of which a plan or a sweep may try values with which the flags do mean something."""


_REPLAYS = (RunCommand, CompareCommand, SplitCommand, PlanCommand, SweepCommand, UpgradeCommand)
_NO_GPU_IN = ("constant:", "fitted:")
_MAY_REPEAT = {"slo", "price", "space", "grid", "changes", "policies"}
"""Flags of which every one counts."""
_SPLITS = {"split"}
"""Likewise, of `plan`."""
_OF_TRACES = {"align", "json"}
"""What two traces are compared by; every other flag of `compare` is about replays."""


def _has_drafts(flags: SpeculationSettings) -> bool:
    return any(
        given is not None for given in (flags.num_speculative_tokens, flags.speculative_config, flags.spec_tokens)
    )


def _may_split(command: Any) -> bool:
    """Whether there may be a split of prefill and decode with engines of a number of its own."""
    if isinstance(command, PlanCommand):
        return bool(command.split) or _varies(command, ("split",))
    if isinstance(command, SweepCommand):
        return command.split_settings.split is not None or _varies(command, ("split",))
    return isinstance(command, SplitCommand) and command.split_settings.split is not None


def _varies(command: Any, names: Sequence[str]) -> bool:
    """Whether a plan or a sweep tries several values of one of the settings, or has a file of variants."""
    if not isinstance(command, PlanCommand | SweepCommand) or not names:
        return False
    if isinstance(command, SweepCommand) and command.variants is not None:
        return True
    texts = chain.from_iterable(command.space if isinstance(command, PlanCommand) else command.grid)
    return any(re.search(rf"(^|[,\s-]){name}=", text.replace("-", "_")) for text in texts for name in names)


def _is_built_in(command: Any) -> bool:
    """Whether the workload is one of ours; looked up only where it matters, since it takes time to load."""
    return command.workload in import_module("tokenyard.workload.load").GENERATORS


_RULES = (
    _Rule(
        _REPLAYS,
        ("columns", "time_unit", "stamped", "prefixes", "turns_follow", "max_bad_lines"),
        _is_built_in,
        "it is for logs of services, and the workload is built in",
    ),
    _Rule(
        (RunCommand, CompareCommand, PlanCommand, SweepCommand),
        ("speculative_method", "acceptance_rates"),
        lambda command: not _has_drafts(command.speculation),
        "without --num-speculative-tokens there are no drafts",
        ("num_speculative_tokens", "speculative_config", "spec_tokens"),
    ),
    _Rule(
        (RunCommand, CompareCommand, PlanCommand, SweepCommand),
        ("kv_offloading_backend",),
        lambda command: command.transfer.kv_offloading_size is None,
        "without --kv-offloading-size nothing is offloaded",
        ("kv_offloading_size",),
    ),
    _Rule(
        _REPLAYS,
        ("router",),
        lambda command: (
            command.parallel.data_parallel_size == 1 and command.parallel.replicas is None and not _may_split(command)
        ),
        "without --data-parallel-size or --replicas there is one engine",
        ("data_parallel_size", "replicas"),
    ),
    _Rule(
        (PlanCommand, SweepCommand),
        ("kv_link_gb_per_s",),
        lambda command: not _may_split(command),
        "without --split every engine does both, prefill and decode",
    ),
    _Rule(
        _REPLAYS,
        ("startup", "scale_target"),
        lambda command: command.parallel.replicas is None,
        "without --replicas there is one deployment",
        ("replicas",),
    ),
    _Rule(
        _REPLAYS,
        ("gpu_memory_utilization",),
        lambda command: command.hardware.num_gpu_blocks_override is not None,
        "--num-gpu-blocks-override says how many blocks there are",
    ),
    _Rule(
        _REPLAYS,
        ("gpu",),
        lambda command: (
            command.hardware.num_gpu_blocks_override is not None and command.hardware.latency.startswith(_NO_GPU_IN)
        ),
        "blocks and step times are given; it only names the run",
    ),
    _Rule(
        _REPLAYS,
        ("prefix_caching_hash_algo",),
        lambda command: not command.scheduler.enable_prefix_caching,
        "without prefix caching nothing is hashed",
        ("enable_prefix_caching",),
    ),
    _Rule(
        _REPLAYS,
        ("skip_oversized_prefill",),
        lambda command: command.scheduler.enable_chunked_prefill,
        "with chunked prefill no prompt is too long for a step",
        ("enable_chunked_prefill",),
    ),
    _Rule((UpgradeCommand,), ("vllm_version",), lambda command: True, "--from and --to name the versions"),
    _Rule(
        (RunCommand, SplitCommand),
        ("record_requests", "max_ids_per_step"),
        lambda command: command.output.trace is None and not os.environ.get("SCHED_TRACE_PATH"),
        "without --trace nothing is recorded",
    ),
    _Rule(
        (CompareCommand,),
        ("scheduling_policy",),
        lambda command: not command.changes,
        "--policies names those that are compared",
    ),
    _Rule(
        (CompareCommand,), ("align",), lambda command: command.other is None, "it is for two traces, and one is given"
    ),
)


def ignored_flags(command: Command, arguments: Sequence[str]) -> list[str]:
    """A sentence for each flag among ``arguments`` that ``command``, which they were read into, will not heed."""
    kind: type = type(command)
    known = setting_names(kind)
    words = (word.partition("=")[0].removeprefix("--").replace("-", "_") for word in arguments if word[:2] == "--")
    typed = Counter(word if word in known else word.removeprefix("no_") for word in words)
    once = known - _MAY_REPEAT - (_SPLITS if kind is PlanCommand else set())
    return [*_repeated(typed, once), *_without_effect(command, typed, known)]


def _repeated(typed: Counter[str], once: set[str]) -> Iterator[str]:
    for name, times in typed.items():
        if name in once and times > 1:
            yield f"{flag(name)} is given {times} times: the last one counts"


def _without_effect(command: Command, typed: Counter[str], known: set[str]) -> Iterator[str]:
    if isinstance(command, CompareCommand) and command.other is not None:
        for name in typed:
            if name in known - _OF_TRACES:
                yield f"{flag(name)} is ignored: two traces are compared, and nothing is replayed"
        return
    for rule in _RULES:
        names = [name for name in rule.flags if name in typed]
        if not names or not isinstance(command, rule.commands) or _varies(command, rule.unless_varied):
            continue
        if rule.when(command):
            yield from (f"{flag(name)} is ignored: {rule.because}" for name in names)
