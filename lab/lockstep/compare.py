"""What vLLM's scheduler and ours hand out, field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, cast

import msgspec

__all__ = ["Difference", "DiffersError", "compare_outputs", "compare_plans", "compare_values"]


class Difference(NamedTuple):
    """The first place where the two part."""

    where: str
    """Call and field."""
    theirs: Any
    ours: Any


class DiffersError(Exception):
    """The two part."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(f"{difference.where}: vLLM {difference.theirs!r}, ours {difference.ours!r}")
        self.difference = difference


def compare_values(where: str, theirs: Any, ours: Any) -> None:
    """Raise DiffersError unless both say the same."""
    if theirs is not ours and theirs != ours:
        raise DiffersError(Difference(where, theirs, ours))


_AS_PAIRS = {"num_scheduled_tokens"}
"""Dictionaries whose order workers see."""


def compare_plans(theirs: Any, ours: Any) -> None:
    """Every field of two ``SchedulerOutput``."""
    for name, one, other in _fields(theirs, ours):
        where = f"schedule().{name}"
        if name == "scheduled_new_reqs":
            compare_values(f"{where} ids", [new.req_id for new in one], [new.req_id for new in other])
            for a, b in zip(one, other, strict=True):
                _compare_fields(f"{where}[{a.req_id}]", a, b)
        elif name == "scheduled_cached_reqs":
            _compare_fields(where, one, other)
        elif name in _AS_PAIRS:
            compare_values(where, list(one.items()), list(other.items()))
        else:
            compare_values(where, one, other)


def compare_outputs(theirs: Mapping[int, Any], ours: Mapping[int, Any]) -> None:
    """Every field of the ``EngineCoreOutputs`` of every client, but the times."""
    where = "update_from_output()"
    compare_values(f"{where} clients", list(theirs), list(ours))
    for client, one in theirs.items():
        other = ours[client]
        compare_values(f"{where} requests", [o.request_id for o in one.outputs], [o.request_id for o in other.outputs])
        for a, b in zip(one.outputs, other.outputs, strict=True):
            _compare_output(f"{where}[{a.request_id}]", a, b)
        compare_values(f"{where}.finished_requests", one.finished_requests, other.finished_requests)
        if one.scheduler_stats is None or other.scheduler_stats is None:
            compare_values(f"{where}.scheduler_stats", one.scheduler_stats, other.scheduler_stats)
        else:
            _compare_fields(f"{where}.scheduler_stats", one.scheduler_stats, other.scheduler_stats)


def _compare_output(where: str, theirs: Any, ours: Any) -> None:
    for name, one, other in _fields(theirs, ours):
        if name == "events":
            compare_values(f"{where}.events", *([event.type for event in each or ()] for each in (one, other)))
        else:
            compare_values(f"{where}.{name}", one, other)


def _compare_fields(where: str, theirs: Any, ours: Any) -> None:
    for name, one, other in _fields(theirs, ours):
        compare_values(f"{where}.{name}", one, other)


def _fields(theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in _names(cast("Hashable", type(theirs))):
        yield name, getattr(theirs, name), getattr(ours, name)


@cache
def _names(record: Hashable) -> tuple[str, ...]:
    assert isinstance(record, type)
    if issubclass(record, msgspec.Struct):
        return record.__struct_fields__
    assert dataclasses.is_dataclass(record)
    return tuple(field.name for field in dataclasses.fields(record))
