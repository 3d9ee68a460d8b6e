"""What a proposed change would do: the figures of a replay with it, beside those of the run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Cost", "Effect", "Trial"]


class Cost(StrEnum):
    """What a change takes, the least first."""

    SETTING = "setting"
    """A flag: no more memory, no more GPUs."""
    CPU_MEMORY = "cpu-memory"
    GPU_MEMORY = "gpu-memory"
    """More of what the GPUs have."""
    GPUS = "gpus"
    OTHER_SCHEDULER = "other-scheduler"
    """A scheduler that vLLM has not."""

    @property
    def rank(self) -> int:
        """Place in this order."""
        return list(Cost).index(self)


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, before and after."""

    figure: str
    """``ttft_ms.p90`` and the like: as the report's JSON names it."""
    before: float
    after: float

    @property
    def change(self) -> float:
        """Share by which it grew; below zero if it shrank."""
        return self.after / self.before - 1 if self.before else 0.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One change, replayed on the same workload."""

    setting: str
    now: Any
    then: Any
    flag: str
    """To paste behind ``vllm serve``."""
    is_vllm: bool = True
    """vLLM has this flag and value; else they are Tokenyard's alone."""
    cost: Cost = Cost.SETTING
    """What it takes."""
    effects: list[Effect] = []
    """None if vLLM would not start with it, or would refuse a request that it served."""
    problem: str | None = None
    """Why there are none."""

    def effect(self, figure: str) -> Effect | None:
        """That on one figure, if it was measured."""
        return next((each for each in self.effects if each.figure == figure), None)

    @property
    def title(self) -> str:
        """``max_num_seqs 32 -> 64``."""
        return f"{self.setting} {_shown(self.now)} -> {_shown(self.then)}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
