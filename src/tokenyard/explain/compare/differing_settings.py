"""The settings in which two traces differ: what was turned between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.format.settings import settings_of
from tokenyard.trace.read.ranks import find_ranks
from tokenyard.trace.read.reader import TraceReader

__all__ = ["SettingDifference", "differing_settings"]


class SettingDifference(msgspec.Struct, frozen=True):
    """One setting of both traces; None where a trace does not name it."""

    name: str
    a: Any
    b: Any


def differing_settings(a: Path | str, b: Path | str) -> list[SettingDifference] | None:
    """Every setting whose values differ; None if a trace does not tell its settings.

    Of several engines, those of the first one that scheduled anything.
    """
    start_a, start_b = _start(a), _start(b)
    if start_a is None or start_b is None:
        return None
    in_a, in_b = settings_of(start_a), settings_of(start_b)
    differing = [
        SettingDifference(name, in_a.get(name), in_b.get(name))
        for name in in_a | in_b
        if in_a.get(name) != in_b.get(name) and not _is_text(in_a.get(name)) and not _is_text(in_b.get(name))
    ]
    sections = {each.name.rpartition(".")[2] for each in differing if "." in each.name}
    return [each for each in differing if each.name not in sections]


def _is_text(value: Any) -> bool:
    """What a deployment says in sentences: assumptions, flags without effect. Its values stand elsewhere."""
    return isinstance(value, list) and any(isinstance(each, dict | str) for each in value)


def _start(path: Path | str) -> TraceStart | None:
    trace = next(each for each in find_ranks(path) if not each.is_idle)
    reader = TraceReader(trace.files, requests=False)
    next(reader.steps())
    return reader.start
