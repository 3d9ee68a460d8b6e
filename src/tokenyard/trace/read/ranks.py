"""A run of several engines: one trace per engine, side by side in one directory.

    DIR/rank-0  DIR/rank-1 ...     of a replay, and of a server whose engines know of each other
    DIR         DIR/rank-1 ...     of a server whose first engine does not know that it has siblings

Whatever reads a trace reads such a directory as one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.errors import TraceError
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.format.settings import settings_of
from tokenyard.trace.read.files import TraceFiles, find_trace, rank_folders, trace_names
from tokenyard.trace.read.reader import ReadNotes, TraceReader

__all__ = ["RankTrace", "find_ranks"]

_OWN_OF_EACH = frozenset({"data_parallel_rank", "kv_tokens", "num_gpu_blocks", "kv_gib"})
"""Settings in which engines of one run may differ: each counts its own blocks."""


class RankTrace(NamedTuple):
    """The trace of one engine."""

    rank: int | None
    """None: the trace is not one of several."""
    files: TraceFiles
    is_idle: bool = False
    """The engine has not scheduled a single step: its trace is empty, or holds its first record alone."""
    run_start: float | None = None
    """Moment of the first step of all engines; None: not one of several, or not known."""


class _Beginning(NamedTuple):
    trace: RankTrace
    start: TraceStart | None
    first_ts: float | None
    """Of its first step."""


def find_ranks(path: Path | str) -> list[RankTrace]:
    """The traces at ``path``: of every engine by its rank where a directory holds several, else the only one.

    Raises TraceError if there is no trace, or traces of different runs.
    """
    path = Path(path)
    folders = rank_folders(path)
    if not folders:
        return [RankTrace(None, find_trace(path))]
    if trace_names(path):
        if 0 in folders:
            fix = f"name one of them, for example {folders[0]}"
            raise TraceError(f"{path}: holds a trace of its own and rank-0, which are of different runs: {fix}")
        folders = {0: path, **folders}
    beginnings = [_beginning(RankTrace(rank, find_trace(path, joined=True))) for rank, path in folders.items()]
    _check_one_run(path, beginnings)
    if all(each.trace.is_idle for each in beginnings):
        raise TraceError(f"{path}: holds no step, in the traces of {len(beginnings)} engines")
    starts = [each.first_ts for each in beginnings if each.first_ts is not None]
    return [each.trace._replace(run_start=min(starts, default=None)) for each in beginnings]


def _beginning(trace: RankTrace) -> _Beginning:
    reader = TraceReader(trace.files, requests=False)
    try:
        first = next(reader.steps())
    except TraceError:
        if reader.notes != ReadNotes():
            raise
        return _Beginning(trace._replace(is_idle=True), reader.start, None)
    return _Beginning(trace, reader.start, first.ts)


def _check_one_run(path: Path, beginnings: Sequence[_Beginning]) -> None:
    """All that say anything ran the same, and all had begun before the first of them scheduled anything."""
    beginnings = [each for each in beginnings if each.start is not None or not each.trace.is_idle]
    first = next(iter(beginnings), None)
    for each in beginnings:
        assert first is not None
        said = (each.start.config or {}).get("data_parallel_rank") if each.start is not None else None
        if said is not None and said != each.trace.rank:
            raise _different(path, first, each, f"the trace in rank-{each.trace.rank} says that it is of rank {said}")
        differing = _differing(first.start, each.start)
        if differing is not None:
            raise _different(path, first, each, differing)
    steps = [each.first_ts for each in beginnings if each.first_ts is not None]
    for each in beginnings:
        began = each.start.ts if each.start is not None else None
        if began is not None and steps and began > min(steps):
            earlier = next(other for other in beginnings if other.first_ts == min(steps))
            why = f"rank {each.trace.rank} began {began - min(steps):,.1f} s after the first step of the other"
            raise _different(path, earlier, each, why)


def _different(path: Path, a: _Beginning, b: _Beginning, why: str) -> TraceError:
    pair = f"rank {a.trace.rank} and rank {b.trace.rank}" if a is not b else f"rank {a.trace.rank}"
    fix = f"remove what is old, or name one of them, for example {a.trace.files.source}"
    return TraceError(f"{path}: the traces are of different runs ({pair}): {why}; {fix}")


def _differing(a: TraceStart | None, b: TraceStart | None) -> str | None:
    """The first setting in which two engines differ that engines of one run share; None if there is none."""
    if a is None or b is None:
        return None if a is b else "one has a trace_start record and the other none"
    in_a, in_b = _shared(a), _shared(b)
    for name in in_a | in_b:
        if in_a.get(name) != in_b.get(name):
            return f"{name} is {in_a.get(name)!r} in one and {in_b.get(name)!r} in the other"
    return None


def _shared(start: TraceStart) -> dict[str, Any]:
    """The settings that engines of one run share."""
    settings = settings_of(start)
    return {name: value for name, value in settings.items() if name.rpartition(".")[2] not in _OWN_OF_EACH}
