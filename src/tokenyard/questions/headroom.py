"""How much room a deployment leaves on its GPU: what takes memory, which steps can still end it, what would start."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

import msgspec

from tokenyard.arguments import suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.errors import NoStartError
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.scenario import deployment_settings
from tokenyard.units import gigabytes

# ---------------------------------------------------------------------------------------------------------------------
# What vLLM does not measure when it starts. It measures a whole step of prompts and a whole batch that is sampled with
# top-k and top-p; what it leaves outside its budget (1 - gpu_memory_utilization) has to hold the rest:
#
#     context            0.4 to 1.0 GiB   in use before vLLM looks; more where a screen or another process has some
#     fragmentation      0 to a tenth of the largest step: blocks of PyTorch's allocator that nothing fits into
#     logprobs           sequences x vocabulary x 4 bytes: another float32 copy of the logits
#     prompt_logprobs    rows x vocabulary x 6 bytes: logits in bfloat16, logprobs in float32. The second model runner
#                        takes 1,024 rows of a prompt at a time, the first one all of a step
#
# Sources: gpu_worker.py, gpu_model_runner.py, sample/sampler.py and worker/gpu/sample/prompt_logprob.py of vLLM 0.22 to
# 0.33; the context by start-up logs (docs/tasks/memory.md).

_CONTEXT = (429_000_000, 1_074_000_000)
_FRAGMENTED = 0.1
_LOGPROB_BYTES = 4
_PROMPT_LOGPROB_BYTES = 6
_ROWS_AT_ONCE = 1024
_TIME = "time: "
"""What is said of a flag that changes nothing but times."""
_NOT_OF_MEMORY = ("step times",)
_MOST_SEQS = 1 << 14
_FEWEST_TOKENS = 256


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What takes memory, in bytes on each GPU."""

    name: str
    likely: int
    most: int


class RiskyStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that takes more than vLLM measured when it started."""

    name: str
    least: int
    """Bytes beyond what was measured; 0: none."""
    most: int
    fits: bool | None
    """Whether there is room for it; None: for the least of it, and not for the most."""
    instead: str
    """What keeps it from happening."""


class SettingLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How far a setting can go with everything else as it is."""

    setting: str
    now: int
    likely: int | None
    """The largest with which vLLM would start by the estimate; None: by no value."""
    safe: int | None
    """The same if a step takes as much memory as it may."""


class HeadRoom(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Memory on each GPU: what takes it, what is left, and for which steps that is too little."""

    printer = "tokenyard.questions.printing.headroom:print_headroom"

    model: str
    gpu: str
    vllm_version: str
    total: int
    """Bytes that the GPU has for programs."""
    utilization: float
    """``gpu_memory_utilization``: vLLM's budget, as a share of the total."""
    parts: list[Part]
    kv_likely: int
    """Bytes for KV by the estimate, within the budget."""
    kv_least: int
    """The same if a step takes as much as it may; 0 or less: vLLM would not start."""
    is_measured: bool
    """The memory for KV was given, as vLLM logs it."""
    outside: int
    """Bytes outside the budget."""
    left_likely: int
    """What context and fragmentation leave of these."""
    left_least: int
    steps: list[RiskyStep]
    """The most dangerous first."""
    limits: list[SettingLimit]
    safe_utilization: float | None
    """The largest ``gpu_memory_utilization`` that leaves room for all of ``steps``, in hundredths; None where it would
    not start with that, or the memory for KV was given."""
    assumed: list[str]

    def summary(self) -> str:
        risky = next((each for each in self.steps if each.fits is not True), None)
        danger = "no step beyond it" if risky is None else f"{risky.name} may be too much"
        return (
            f"{gigabytes(self.left_least)} to {gigabytes(self.left_likely)} beside {self.model} on {self.gpu}, {danger}"
        )

    def as_table(self) -> RowTable:
        """One row per cause: ``part``, ``likely`` and ``most``, in bytes."""
        return table_from(
            "memory", [{"part": each.name, "likely": each.likely, "most": each.most} for each in self.parts]
        )


@suggests_keywords()
def headroom(deployment: Deployment) -> HeadRoom:
    """How much memory a deployment leaves on its GPU, by cause, and what may still be too much for it.

    Raises TokenyardError, NoStartError where it would not start at all.
    """
    deployment_settings(deployment)
    deployment = _whatever_its_times(deployment)
    settled = deployment.resolve().settled
    hardware = settled.hardware
    parts = settled.memory_parts()
    total = settled.gpu.memory_bytes
    budget = int(total * hardware.gpu_memory_utilization)
    is_measured = hardware.kv_cache_memory_bytes is not None or hardware.num_gpu_blocks_override is not None
    kv = settled.kv_bytes if is_measured else budget - sum(each.likely for each in parts)
    least = settled.kv_bytes if is_measured else budget - sum(each.most for each in parts)
    step = {each.name: each for each in parts}
    outside = total - budget
    if is_measured:  # whatever the budget said: vLLM takes what it is given
        outside = total - sum(each.likely for each in parts) - kv
    fragmented = int(_FRAGMENTED * (step["activations"].most + step["sampler"].most))
    left_likely, left_least = outside - _CONTEXT[0], outside - _CONTEXT[1] - fragmented
    steps = _risky_steps(settled, step["activations"].likely + step["sampler"].likely, left_likely, left_least)
    needed = _CONTEXT[1] + fragmented + max(each.most for each in steps)
    return HeadRoom(
        model=settled.model.name,
        gpu=settled.gpu.name,
        vllm_version=settled.version,
        total=total,
        utilization=hardware.gpu_memory_utilization,
        parts=[Part(name=each.name, likely=each.likely, most=each.most) for each in parts if each.most],
        kv_likely=kv,
        kv_least=least,
        is_measured=is_measured,
        outside=outside,
        left_likely=left_likely,
        left_least=left_least,
        steps=steps,
        limits=list(filter(None, (_seqs(deployment, settled), _length(deployment, settled)))),
        safe_utilization=None if is_measured else _safe_utilization(deployment, needed / total),
        assumed=[str(each) for each in deployment.resolve().assumed if each.name not in _NOT_OF_MEMORY],
    )


def _whatever_its_times(deployment: Deployment) -> Deployment:
    """The deployment without flags that are not modelled, if they change times alone: they are listed as ignored."""
    left = deployment.settings.launch.asked.not_modelled
    are_times = left and all(each.flag.why.startswith(_TIME) for each in left)
    return deployment.with_(ignore_unmodelled=True) if are_times else deployment


def _safe_utilization(deployment: Deployment, outside: float) -> float | None:
    """The largest that leaves such a share outside, if it starts with that."""
    value = floor(100 * (1 - outside)) / 100
    if value <= 0:
        return None
    try:
        deployment.with_(gpu_memory_utilization=value).resolve()
    except NoStartError:
        return None
    return value


def _risky_steps(settled: ResolvedSettings, measured: int, left_likely: int, left_least: int) -> list[RiskyStep]:
    """Steps that vLLM did not measure, the largest first; ``measured`` bytes are there for a step in any case."""
    vocabulary = settled.model.vocab_size
    tokens, sequences = settled.scheduling.max_num_batched_tokens, settled.scheduling.max_num_seqs
    few, many = (
        max(rows * vocabulary * _PROMPT_LOGPROB_BYTES - measured, 0) for rows in (min(_ROWS_AT_ONCE, tokens), tokens)
    )
    copy = sequences * vocabulary * _LOGPROB_BYTES
    fewer = max(left_least + measured, 0) // (vocabulary * _PROMPT_LOGPROB_BYTES)
    found = [
        (
            f"a prompt of {tokens:,} tokens in one step with prompt_logprobs",
            few,
            many,
            f"--max-num-batched-tokens {fewer:,} or less, or no prompt_logprobs",
        ),
        (
            f"{sequences:,} answers in one step with logprobs",
            copy,
            copy,
            "a smaller --max-num-seqs, or no logprobs",
        ),
    ]
    steps = [
        RiskyStep(
            name=name,
            least=low,
            most=high,
            fits=True if high <= left_least else False if low > left_likely else None,
            instead=instead,
        )
        for name, low, high, instead in found
    ]
    return sorted(steps, key=lambda each: -each.most)


# ---------------------------------------------------------------------------------------------------------------------
# The largest value of a setting with which vLLM would start: by the estimate, and if a step takes all that it may.


def _seqs(deployment: Deployment, settled: ResolvedSettings) -> SettingLimit | None:
    most = min(_MOST_SEQS, settled.scheduling.max_num_batched_tokens)
    likely, safe = _largest(deployment, "max_num_seqs", 1, most)
    return SettingLimit(setting="max_num_seqs", now=settled.scheduling.max_num_seqs, likely=likely, safe=safe)


def _length(deployment: Deployment, settled: ResolvedSettings) -> SettingLimit | None:
    most = max(settled.model.max_model_len, settled.model.longest_model_len)
    likely, safe = _largest(deployment, "max_model_len", min(_FEWEST_TOKENS, most), most)
    return SettingLimit(setting="max_model_len", now=settled.plan.max_model_len, likely=likely, safe=safe)


def _largest(deployment: Deployment, setting: str, low: int, high: int) -> tuple[int | None, int | None]:
    """The largest value that starts by the estimate, and the largest that starts in any case."""
    fewest: dict[int, int | None] = {}

    def blocks(value: int) -> int:
        """Blocks that there are in any case; -1 if not even by the estimate."""
        if value not in fewest:
            try:
                changes: dict[str, Any] = {setting: value}
                settled = deployment.with_(**changes).resolve().settled
                fewest[value] = settled.fewest_blocks if settled.fewest_blocks is not None else settled.plan.num_blocks
            except NoStartError:
                fewest[value] = -1
        found = fewest[value]
        assert found is not None
        return found

    return _last(lambda value: blocks(value) >= 0, low, high), _last(lambda value: blocks(value) > 0, low, high)


def _last(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest number for which it holds; if for one, then for every smaller one."""
    if not holds(low):
        return None
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
