"""Every number of two reports, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tokenyard.explain.report.report import Report

__all__ = ["Figure", "figures"]

_NOT_COMPARED = frozenset(("report_version", "header", "reading", "advice", "arrivals", "disagreements"))
_FIRST = (
    "duration_s",
    "throughput",
    "goodput",
    "e2e_ms",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "queue_ms",
    "preemptions",
    "recomputed_tokens",
)
_LAST = ("buckets", "reasons")
_LESS_IS_BETTER = (
    "queue_ms",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "e2e_ms",
    "preemptions",
    "recomputed_tokens",
    "recorded_reasons",
    "unseen_s",
)
_MORE_IS_BETTER = ("prefix_hit_rate", "throughput", "goodput")


class Figure(msgspec.Struct, frozen=True):
    """One number of both reports; None where a trace does not have it."""

    name: str
    """Where it stands in the report's JSON: ``ttft_ms.p99``."""
    a: float | None
    b: float | None
    less_is_better: bool | None
    """None if neither more nor less is."""

    @property
    def differs(self) -> bool:
        return self.a != self.b


def figures(a: Report, b: Report) -> list[Figure]:
    """Every number that either report has, those that users feel first."""
    in_a, in_b = dict(_numbers(msgspec.to_builtins(a))), dict(_numbers(msgspec.to_builtins(b)))
    names = sorted([*in_a, *(name for name in in_b if name not in in_a)], key=_rank)
    return [
        Figure(name, in_a.get(name), in_b.get(name), _direction(name))
        for name in names
        if in_a.get(name) is not None or in_b.get(name) is not None
    ]


def _numbers(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    for name, value in fields.items():
        if not prefix and name in _NOT_COMPARED:
            continue
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _numbers(value, path + ".")
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield path, value


def _rank(name: str) -> int:
    """What users feel, then the rest in the order of the report, then the classifier's guesses."""
    top = name.partition(".")[0]
    if top in _FIRST:
        return _FIRST.index(top)
    return len(_FIRST) + (top in _LAST)


def _direction(name: str) -> bool | None:
    top = name.partition(".")[0]
    return True if top in _LESS_IS_BETTER else False if top in _MORE_IS_BETTER else None
