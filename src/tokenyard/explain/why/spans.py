"""Traces as spans of OpenTelemetry: a request, and what it waited for."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.export.spans import SpanSender, send_spans
from tokenyard.trace.reader import RankTrace, TraceReader

_EARLIEST_UNIX = 946_684_800.0
"""The year 2000: a clock that shows less is a virtual one."""


def send_traces(traces: Sequence[RankTrace], url: str, name: str) -> int:
    """Send the requests of the engines of one run; how many spans. Raises TokenyardError for a wrong address."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it would say comes as our one message
    SpanSender(url, name).close()  # a wrong address raises before the trace is read
    busy = [trace for trace in traces if not trace.is_idle]
    offset = offset_us(busy)
    sent = 0
    for trace in busy:
        timelines = TimelineReader(trace.files).timelines()
        sent += send_spans(timelines, url, name, offset_us=offset, rank=trace.rank)
    return sent


def offset_us(traces: Sequence[RankTrace]) -> int:
    """Microseconds from the traces' clock to Unix time.

    An emulation says when its clock was 0. A replay's begins at 0: its spans end when the trace was written then.
    """
    last = written = 0.0
    for trace in traces:
        reader = TraceReader(trace.files, requests=False)
        for step in reader.steps():
            if reader.start is not None and reader.start.clock_zero is not None:
                return int(reader.start.clock_zero * 1e6)
            if step.ts is not None:
                if step.ts >= _EARLIEST_UNIX:
                    return 0
                last = max(last, step.ts)
        written = max(written, trace.files.source.stat().st_mtime)
    return int((written - last) * 1e6)
