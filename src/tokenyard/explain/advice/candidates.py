"""From advice to concrete changes that can be replayed: a setting, its new value, and the flag that sets it.

Nothing is proposed that cannot have an effect under the given settings: where the KV cache was given in blocks or in
bytes, more of these and not a larger share of the memory; no limit on seats above what was ever taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tokenyard.explain.advice.rule import Advice
from tokenyard.explain.report.report import Report

__all__ = ["Change", "changes_for", "objective_of"]

_MOST_MEMORY = 0.95
"""Utilisation up to which vLLM is known to start on GPUs that it has for itself."""
_SHARE_OF_PREFILL = 4
"""Part of the token budget that one prompt may take where prefills are to be shortened."""
_VLLM_POLICIES = ("fcfs", "priority")


class Change(NamedTuple):
    """One setting with another value."""

    setting: str
    now: Any
    then: Any
    flag: str
    is_vllm: bool = True


Settings = Mapping[str, Any]
"""Of the run, by name: ``max_num_seqs``, ``gpu_memory_utilization`` ..."""


def changes_for(advice: Advice, settings: Settings, report: Report) -> list[Change]:
    """What to try for a piece of advice, the smallest change first; nothing where nothing can be tried."""
    propose = _PROPOSALS.get(advice.rule)
    return [] if propose is None else [each for each in propose(settings, report) if each.then != each.now]


def objective_of(rule: str) -> str:
    """The figure that a rule's change has to lower."""
    return _OBJECTIVES.get(rule, "ttft_ms.p90")


def _number(setting: str, settings: Settings, then: float) -> Change:
    flag = (
        f"--{setting.replace('_', '-')} {then:g}"
        if isinstance(then, float)
        else f"--{setting.replace('_', '-')} {then}"
    )
    return Change(setting, settings.get(setting), then, flag)


def _switch(setting: str, settings: Settings, *, then: bool) -> Change:
    name = setting.replace("_", "-")
    return Change(setting, settings.get(setting), then, f"--{name}" if then else f"--no-{name}")


def _policy(settings: Settings, then: str) -> Change:
    now = settings.get("scheduling_policy")
    return Change("scheduling_policy", now, then, f"--scheduling-policy {then}", then in _VLLM_POLICIES)


def _seats(settings: Settings, report: Report) -> Iterator[Change]:
    now = settings["max_num_seqs"]
    for then in (now * 2, now * 4):
        if then <= settings["max_num_batched_tokens"]:
            yield _number("max_num_seqs", settings, then)


def _seats_and_memory(settings: Settings, report: Report) -> Iterator[Change]:
    """Each alone: a trial changes one setting, and shows which of the two holds requests back next."""
    yield from _memory(settings, report)
    yield from _seats(settings, report)


def _token_budget(settings: Settings, report: Report) -> Iterator[Change]:
    now = settings["max_num_batched_tokens"]
    for then in (now * 2, now * 4):
        yield _number("max_num_batched_tokens", settings, then)


def _more_gpus(settings: Settings, report: Report) -> Iterator[Change]:
    yield _number("tensor_parallel_size", settings, settings["tensor_parallel_size"] * 2)


def _memory(settings: Settings, report: Report) -> Iterator[Change]:
    for given in ("num_gpu_blocks_override", "kv_cache_memory_bytes"):
        if settings.get(given) is not None:
            yield _number(given, settings, settings[given] * 2)
            return
    if settings["gpu_memory_utilization"] < _MOST_MEMORY:
        yield _number("gpu_memory_utilization", settings, _MOST_MEMORY)
    yield from _more_gpus(settings, report)


def _fewer_seats(settings: Settings, report: Report) -> Iterator[Change]:
    """Below what ever ran: above it the limit holds nobody back."""
    most = min(report.header.max_running or 0, settings["max_num_seqs"])
    for then in (most * 3 // 4, most // 2):
        if then >= 1:
            yield _number("max_num_seqs", settings, then)
    yield from _memory(settings, report)


def _shorter_prefills(settings: Settings, report: Report) -> Iterator[Change]:
    budget = settings["max_num_batched_tokens"]
    if budget >= _SHARE_OF_PREFILL:
        yield _number("long_prefill_token_threshold", settings, budget // _SHARE_OF_PREFILL)
    if budget // 2 >= settings["max_num_seqs"]:
        yield _number("max_num_batched_tokens", settings, budget // 2)


_PROPOSALS: dict[str, Callable[[Settings, Report], Iterator[Change]]] = {
    "seats": _seats,
    "seats-and-memory": _seats_and_memory,
    "token-budget": _token_budget,
    "compute": _more_gpus,
    "whole-prompts": lambda settings, _: iter([_switch("enable_chunked_prefill", settings, then=True)]),
    "memory": _memory,
    "blocks": _memory,
    "kv-bytes": _memory,
    "order": lambda settings, _: iter([_policy(settings, "bypass")]),
    "full-sequence": lambda settings, _: iter([_switch("scheduler_reserve_full_isl", settings, then=False)]),
    "watermark": lambda settings, _: iter([_number("watermark", settings, 0.0)]),
    "preemptions": _fewer_seats,
    "long-prefills": _shorter_prefills,
    "no-prefix-cache": lambda settings, _: iter([_switch("enable_prefix_caching", settings, then=True)]),
    "evicted-turns": lambda settings, _: iter([_policy(settings, "continuum-share")]),
}
"""By the name of the rule (``rules.toml``); the others propose what a replay has no flag for."""

_OBJECTIVES = {
    "preemptions": "e2e_ms.mean",
    "compute": "e2e_ms.mean",
    "evicted-turns": "e2e_ms.mean",
    "long-prefills": "tpot_ms.p99",
}
