"""What may not differ, and the verdict on one case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from config_oracle.ours import Answer

__all__ = ["Outcome", "judge"]

_FP8 = {"fp8": "fp8_e4m3"}
"""Names of one dtype."""
_NOT_READ = "failed to be inspected"
"""What vLLM says where importing the class of a known architecture fails."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case, judged."""

    kind: str
    """equal, refused by both, not modelled, no memory, a named exception, or a difference."""
    details: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether one of the two is wrong."""
        return self.kind.startswith("DIFFERENT")


def judge(theirs: dict[str, Any] | str, ours: Answer) -> Outcome:
    """``theirs`` is what vLLM settled, or why it refused."""
    if isinstance(theirs, str):
        if _NOT_READ in theirs:
            return Outcome("not asked: vLLM's class of that model wants other packages than are here", (theirs,))
        return _refused_by_vllm(theirs, ours)
    if ours.refused:
        return _refused_by_us(ours)
    found = tuple(_differences(theirs, ours.settings))
    if found and ours.named and ours.changes_values:
        return Outcome("named in our header", (*found, *ours.named))
    return Outcome("DIFFERENT: values", found) if found else Outcome("equal")


def _refused_by_vllm(reason: str, ours: Answer) -> Outcome:
    if ours.refused:
        return Outcome("refused by both", (reason, ours.refused))
    if ours.named:
        return Outcome("refused by vLLM, named in our header", (reason, *ours.named))
    return Outcome("DIFFERENT: vLLM refuses, we start", (reason,))


def _refused_by_us(ours: Answer) -> Outcome:
    kind = "not modelled"
    if ours.for_memory:
        kind = "no memory on that GPU"
    elif ours.for_weights:
        kind = "no weights like that, which a configuration does not tell"
    elif ours.for_kv_scales:
        kind = "named: fp8_e5m2 beside scales of keys and values, which vLLM refuses in its attention layers"
    elif ours.says_no_start:
        kind = "DIFFERENT: vLLM starts, we say that it would not"
    return Outcome(kind, (ours.refused,))


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """What vLLM leaves open (None) cannot differ."""
    for name, value in ours.items():
        if theirs[name] is not None and _plain(theirs[name]) != _plain(value):
            yield f"{name}: vLLM {theirs[name]}, we {value}"


def _plain(value: Any) -> Any:
    return _FP8.get(value, value) if isinstance(value, str) else value
