"""From advice to changes that are replayed, and which of them help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any

import msgspec

from tokenyard.explain.advice.rules import Advice, Cost, Effect, Trial
from tokenyard.explain.report.report import Report

# ---------------------------------------------------------------------------------------------------------------------
# From advice to concrete changes that can be replayed: a setting, its new value, and the flag that sets it.
#
# For each piece of advice what costs nothing is tried as well as what costs memory or GPUs, so that a replay can tell
# whether it is worth that. Nothing is proposed that cannot have an effect under the given settings: where the KV
# cache was given in blocks or in bytes, more of these and not a larger share of the memory; no limit on seats above
# what was ever taken.

_MOST_MEMORY = 0.95
"""Utilisation up to which vLLM is known to start on GPUs that it has for itself."""
_SHARE_OF_PREFILL = 4
"""Part of the token budget that one prompt may take where prefills are to be shortened."""
_VLLM_POLICIES = ("fcfs", "priority")
_WIDE = ("bfloat16", "float16")
"""KV, and weights, that take half the memory as fp8."""
_COSTS = {
    "kv_offloading_size": Cost.CPU_MEMORY,
    "num_gpu_blocks_override": Cost.GPU_MEMORY,
    "kv_cache_memory_bytes": Cost.GPU_MEMORY,
    "tensor_parallel_size": Cost.GPUS,
    "scheduling_policy": Cost.OTHER_SCHEDULER,
}
"""What a setting costs; those that are not here cost nothing but what their price says."""
_PRICES = {
    "kv_cache_dtype": "KV in 8 bits: answers may differ a little, so try it on prompts of yours",
    "quantization": "weights in 8 bits: answers may differ a little, so try it on prompts of yours",
    "kv_offloading_size": "so much CPU memory, in GiB; KV that comes back goes over PCIe",
    "tensor_parallel_size": "twice the GPUs",
    "gpu_memory_utilization": "less head-room for activations",
    "num_gpu_blocks_override": "memory for the blocks",
    "kv_cache_memory_bytes": "twice the memory for KV",
    "max_num_seqs": "more requests share each step, or fewer run at once",
    "max_num_batched_tokens": (
        "with more tokens in a step those that decode wait longer for their next one, with fewer a long prompt takes"
        " more steps"
    ),
}
"""What changes cost that are not what their rule is about."""


class Change(msgspec.Struct, frozen=True):
    """One setting with another value."""

    setting: str
    now: Any
    then: Any
    flag: str
    is_vllm: bool = True
    cost: Cost = Cost.SETTING
    also: tuple[tuple[str, Any], ...] = ()
    """Settings that change with it, so that it takes the same memory."""


Settings = Mapping[str, Any]
"""Settings of the run, by name: ``max_num_seqs``, ``gpu_memory_utilization`` ...; ``weight_dtype``, ``kv_dtype``,
``kv_gib`` (each GPU's) and ``memory_num_gpu_blocks`` as in the report's header."""


def changes_for(advice: Advice, settings: Settings, report: Report) -> list[Change]:
    """What to try for a piece of advice, the smallest change first; nothing where nothing can be tried."""
    propose = _PROPOSALS.get(advice.rule)
    changes = [] if propose is None else list(propose(settings, report))
    if advice.rule in _AS_ADVISED and isinstance(advice.to, int):
        changes.append(_number(advice.setting, settings, advice.to))
    return [each for each in changes if each.then != each.now]


def objective_of(rule: str) -> str:
    """The figure that a rule's change has to lower."""
    return _OBJECTIVES.get(rule, "ttft_ms.p90")


def cost_of(setting: str) -> Cost:
    """What a change of it costs."""
    return _COSTS.get(setting, Cost.SETTING)


def price_in_words(setting: str) -> str | None:
    """What a change of the setting costs, in words; None where the rule itself says it."""
    return _PRICES.get(setting)


def _number(setting: str, settings: Settings, then: float) -> Change:
    value = f"{then:g}" if isinstance(then, float) else f"{then}"
    flag = f"--{setting.replace('_', '-')} {value}"
    return Change(setting, settings.get(setting), then, flag, cost=cost_of(setting))


def _switch(setting: str, settings: Settings, *, then: bool) -> Change:
    name = setting.replace("_", "-")
    return Change(setting, settings.get(setting), then, f"--{name}" if then else f"--no-{name}")


def _policy(settings: Settings, then: str) -> Change:
    now = settings.get("scheduling_policy")
    is_vllm = then in _VLLM_POLICIES
    cost = Cost.SETTING if is_vllm else Cost.OTHER_SCHEDULER
    return Change("scheduling_policy", now, then, f"--scheduling-policy {then}", is_vllm, cost)


def _seats(settings: Settings, report: Report) -> Iterator[Change]:
    now = settings["max_num_seqs"]
    for then in (now * 2, now * 4):
        if then <= settings["max_num_batched_tokens"]:
            yield _number("max_num_seqs", settings, then)


def _seats_and_memory(settings: Settings, report: Report) -> Iterator[Change]:
    """Each alone: a trial changes one setting, and shows which of the two holds requests back next."""
    yield from _spare_memory(settings)
    yield from _smaller_kv(settings)
    yield from _seats(settings, report)
    yield from _more_memory(settings)
    yield from _cpu_memory(settings)
    yield from _gpus_for_kv(settings)


def _token_budget(settings: Settings, report: Report) -> Iterator[Change]:
    now = settings["max_num_batched_tokens"]
    for then in (now * 2, now * 4):
        yield _number("max_num_batched_tokens", settings, then)


def _less_to_compute(settings: Settings, report: Report) -> Iterator[Change]:
    """Other chunks; KV that stays need not be computed again; then more GPUs."""
    budget = settings["max_num_batched_tokens"]
    yield _number("max_num_batched_tokens", settings, budget * 2)
    if budget // 2 >= settings["max_num_seqs"]:
        yield _number("max_num_batched_tokens", settings, budget // 2)
    yield from _smaller_kv(settings)
    yield from _cpu_memory(settings)
    yield from _more_gpus(settings)


def _smaller_kv(settings: Settings) -> Iterator[Change]:
    """KV as fp8: the same memory holds twice as much of it; blocks that were given by number are then twice as many."""
    if settings.get("kv_dtype") not in _WIDE:
        return
    blocks = settings.get("num_gpu_blocks_override")
    twice = () if blocks is None else (("num_gpu_blocks_override", 2 * blocks),)
    flags = "".join(f" --{name.replace('_', '-')} {value}" for name, value in twice)
    yield Change("kv_cache_dtype", settings["kv_cache_dtype"], "fp8", f"--kv-cache-dtype fp8{flags}", also=twice)


def settings_of_last_resort(settings: Settings) -> Iterator[Change]:
    """What may serve more on the same GPUs whatever holds requests back: KV, and weights, in fewer bits."""
    yield from _smaller_kv(settings)
    if settings["quantization"] is None and settings.get("weight_dtype") in _WIDE:
        yield Change("quantization", None, "fp8", "--quantization fp8")


def _spare_memory(settings: Settings) -> Iterator[Change]:
    """What the GPUs have beside the blocks that were given by number: all that the engine would take by itself."""
    now, most = settings.get("num_gpu_blocks_override"), settings.get("memory_num_gpu_blocks")
    if now is not None and most is not None and most > now:
        flag = f"--num-gpu-blocks-override {most}"
        yield Change("num_gpu_blocks_override", now, most, flag, cost=Cost.SETTING)


def _more_memory(settings: Settings) -> Iterator[Change]:
    """More memory on the same GPUs, where it is not known whether they have it."""
    if settings.get("memory_num_gpu_blocks") is not None:
        return
    for given in ("num_gpu_blocks_override", "kv_cache_memory_bytes"):
        if settings.get(given) is not None:
            yield _number(given, settings, settings[given] * 2)
            return
    if settings["gpu_memory_utilization"] < _MOST_MEMORY:
        yield _number("gpu_memory_utilization", settings, _MOST_MEMORY)


def _cpu_memory(settings: Settings) -> Iterator[Change]:
    """Propose as much CPU memory for KV as the GPUs have."""
    size = settings.get("kv_gib")
    if size and settings.get("kv_offloading_size") is None and settings.get("kv_transfer_config") is None:
        yield _number("kv_offloading_size", settings, float(ceil(size * settings["tensor_parallel_size"])))


def _more_gpus(settings: Settings) -> Iterator[Change]:
    yield _number("tensor_parallel_size", settings, settings["tensor_parallel_size"] * 2)


def _gpus_for_kv(settings: Settings) -> Iterator[Change]:
    """Not where the KV cache was given by hand: it would be as small as before."""
    if all(settings.get(given) is None for given in ("num_gpu_blocks_override", "kv_cache_memory_bytes")):
        yield from _more_gpus(settings)


def _memory(settings: Settings, report: Report) -> Iterator[Change]:
    yield from _spare_memory(settings)
    yield from _smaller_kv(settings)
    yield from _more_memory(settings)
    yield from islice(_seats_below(settings, report), 1)
    yield from _cpu_memory(settings)
    yield from _gpus_for_kv(settings)


def _room_for_kv(settings: Settings) -> Iterator[Change]:
    yield from _spare_memory(settings)
    yield from _smaller_kv(settings)
    yield from _more_memory(settings)
    yield from _cpu_memory(settings)
    yield from _gpus_for_kv(settings)


def _kept_turns(settings: Settings, report: Report) -> Iterator[Change]:
    yield from _room_for_kv(settings)
    yield _policy(settings, "continuum-share")


def _seats_below(settings: Settings, report: Report) -> Iterator[Change]:
    """Below what ever ran: above it the limit holds no request back."""
    most = min(report.header.max_running or 0, settings["max_num_seqs"])
    for then in (most * 3 // 4, most // 2):
        if then >= 1:
            yield _number("max_num_seqs", settings, then)


def _fewer_seats(settings: Settings, report: Report) -> Iterator[Change]:
    yield from _seats_below(settings, report)
    yield from _room_for_kv(settings)


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
    "compute": _less_to_compute,
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
    "evicted-turns": _kept_turns,
}
"""Name of the rule (``rules.toml``) -> the changes that it proposes; the others propose what a replay has no flag for.
"""

_AS_ADVISED = (
    *("large-batch", "slow-steps", "prefill-in-steps", "prefill-in-pieces"),
    *("small-chunks", "slow-prefill", "step-in-flight"),
)
"""Rules whose own value is tried."""

_OBJECTIVES = {
    "large-batch": "tpot_ms.p90",
    "slow-steps": "tpot_ms.p90",
    "prefill-in-steps": "tpot_ms.p99",
    "prefill-in-pieces": "tpot_ms.p99",
    "preemptions": "e2e_ms.mean",
    "compute": "e2e_ms.mean",
    "evicted-turns": "e2e_ms.mean",
    "long-prefills": "tpot_ms.p99",
}


# ---------------------------------------------------------------------------------------------------------------------
# Which of the changes that were tried help: those that are shown.

FIGURES = ("ttft_ms.p90", "tpot_ms.p90", "tpot_ms.p99", "e2e_ms.mean", "throughput.output_tokens_per_s")
SERVED = "outcomes.served"
"""The figure of which more is better than any latency: those are of everybody only where everybody is served."""
LEAST_GAIN = 0.03
"""Share by which the objective has to fall for a change to help, or by which more have to be served."""
MOST_LOSS = 0.03
"""Share by which the mean time of a request may grow at the same time."""
_ALIKE = 0.02


def trial_of(change: Change, before: Report, after: Report | None, problem: str | None = None) -> Trial:
    """The change with its effects; none of them if the replay with it came to nothing."""
    return Trial(
        setting=change.setting,
        now=change.now,
        then=change.then,
        flag=change.flag,
        is_vllm=change.is_vllm,
        cost=change.cost,
        effects=[] if after is None else effects_of(before, after),
        problem=problem,
    )


def effects_of(before: Report, after: Report) -> list[Effect]:
    """Return the figures that are shown, and those of missed bounds, of a run and of a replay with changes; how many
    are served, where that is another number. Of a figure that is a lower bound it is not known how it changes.
    """
    bounds = {*before.censored, *after.censored}
    effects = []
    for figure in dict.fromkeys((*_missed(before), SERVED, *FIGURES)):
        old, new = _figure(before, figure), _figure(after, figure)
        if old is not None and new is not None and figure not in bounds and (figure != SERVED or old != new):
            effects.append(Effect(figure=figure, before=old, after=new))
    return effects


def best_trial(rule: str, trials: Sequence[Trial]) -> Trial | None:
    """The trial that lowers the rule's objective most, the smallest change of those alike; None if none helps."""
    helping = [each for each in trials if _helps(each, _objective(rule, each))]
    if not helping:
        return None
    best = min(-gain_of(rule, each) for each in helping)
    return next(each for each in helping if -gain_of(rule, each) <= best + _ALIKE)


def worth_their_cost(rule: str, trials: Sequence[Trial]) -> list[Trial]:
    """The trial of each cost that helps most, the cheapest first; a dearer one if it helps more than they do."""
    kept: list[Trial] = []
    for cost in Cost:
        best = best_trial(rule, [each for each in trials if each.cost is cost])
        if best is not None and all(gain_of(rule, best) >= gain_of(rule, each) + LEAST_GAIN for each in kept):
            kept.append(best)
    return kept


def gain_of(rule: str, trial: Trial) -> float:
    """Share by which more are served with it, where that is notable; else by which it lowers the rule's objective."""
    served = served_gain(trial.effect(SERVED))
    return served if abs(served) >= LEAST_GAIN else -_change(trial, _objective(rule, trial))


def served_gain(effect: Effect | None) -> float:
    """Share by which more are served."""
    return 0.0 if effect is None else (effect.after - effect.before) / max(effect.before, 1.0)


def _missed(report: Report) -> list[str]:
    """The figures whose bounds are missed, by the names of a report's JSON."""
    objectives = () if report.goodput is None else report.goodput.objectives
    return [each.figure for each in objectives if each.figure is not None and each.met is False]


def _objective(rule: str, trial: Trial) -> str:
    """The figure that a trial has to lower: of a rule about a missed bound the one that is missed, where it is another
    than is always shown, or of a class.
    """
    usual = objective_of(rule)
    of_rule = ("tpot_ms.", "itl_ms.") if usual.startswith("tpot_ms.") else ("ttft_ms.",)
    others = [each.figure for each in trial.effects if each.figure not in (SERVED, *FIGURES)]
    missed = [each for each in others if each.rpartition(":")[2].startswith(of_rule)]
    return missed[0] if missed and rule in _AS_ADVISED else usual


def _helps(trial: Trial, objective: str) -> bool:
    served = served_gain(trial.effect(SERVED))
    if abs(served) >= LEAST_GAIN:
        return served > 0
    return _change(trial, objective) <= -LEAST_GAIN and _change(trial, "e2e_ms.mean") <= MOST_LOSS


def _change(trial: Trial, figure: str) -> float:
    effect = trial.effect(figure)
    return 0.0 if effect is None else effect.change


def _figure(report: Report, path: str) -> float | None:
    if ":" in path:
        of_classes = [] if report.goodput is None else report.goodput.objectives
        return next((each.value_ms for each in of_classes if each.figure == path), None)
    section, name = path.split(".")
    value = getattr(getattr(report, section), name, None)
    return None if value is None else float(value)
