"""A trace drawn for Perfetto or Chrome: every engine below its own name, with the life of every request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tokenyard.explain.why.timeline_reader import TimelineReader
from tokenyard.trace.export.chrome import ChromeWriter
from tokenyard.trace.export.perfetto import PerfettoWriter
from tokenyard.trace.export.timeline import emit_timeline
from tokenyard.trace.read.ranks import RankTrace

__all__ = ["draw"]

_Writer = TypeVar("_Writer", PerfettoWriter, ChromeWriter)


def draw(traces: Sequence[RankTrace], writer_of: Callable[[str], _Writer]) -> _Writer:
    """Draw the traces of the engines of one run; ``writer_of`` makes the writer, given the first engine's name.

    An engine without steps is its name alone. Raises TraceError if a trace cannot be read.
    """
    writer: _Writer | None = None
    for trace in traces:
        name = trace.files.name if trace.rank is None else f"{trace.files.name} rank {trace.rank}"
        if writer is None:
            writer = writer_of(name)
        else:
            writer.next_engine(name)
        if not trace.is_idle:
            emit_timeline(TimelineReader(trace.files).with_timelines(), writer)
    assert writer is not None, "there is one trace at least"
    return writer
