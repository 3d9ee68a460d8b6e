"""The timelines of a trace, drawn for Perfetto or Chrome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.export.chrome import ChromeWriter
from tokenyard.trace.export.perfetto import PerfettoWriter
from tokenyard.trace.export.timeline import emit_timeline
from tokenyard.trace.reader import RankTrace

_Writer = TypeVar("_Writer", PerfettoWriter, ChromeWriter)


def draw(traces: Sequence[RankTrace], writer_of: Callable[[str], _Writer]) -> _Writer:
    """Draw the traces of one run's engines for Perfetto or Chrome; ``writer_of`` makes the writer of the first's name.

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
