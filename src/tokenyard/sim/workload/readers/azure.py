"""Azure LLM inference traces: CSV with ``TIMESTAMP``, ``ContextTokens`` and ``GeneratedTokens``.

They record no prefixes: every prompt is unique. The first request arrives at 0. A time without an offset is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from tokenyard.errors import shown
from tokenyard.sim.workload.readers.lines import MAX_SECONDS, CsvRows, ReadOptions
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import StreamTokens, seed_of

__all__ = ["read_azure"]

_MOMENT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<offset>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)


def read_azure(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per row; rows must be in order of time, and a length of 0 tokens counts as 1."""
    rows = CsvRows(path, "TIMESTAMP", "ContextTokens", "GeneratedTokens")
    start: int | None = None
    last = 0.0
    for row in islice(rows, options.limit):
        moment = _nanoseconds(rows, row)
        start = moment if start is None else start
        arrival = (moment - start) / 1e9
        if not last <= arrival <= MAX_SECONDS:
            problem = "is earlier than the row before" if arrival < last else "is decades after the first row"
            raise rows.error(f"TIMESTAMP = {shown(rows.text(row, 'TIMESTAMP'))}: {problem}")
        last = arrival
        seed = seed_of("azure", options.seed, rows.line)
        yield WorkloadRequest(
            request_id=f"azure_{rows.line:06d}",
            prompt=StreamTokens.unique(seed, max(1, rows.count(row, "ContextTokens"))),
            max_tokens=max(1, rows.count(row, "GeneratedTokens")),
            arrival_time=arrival,
            output_seed=seed,
        )


def _nanoseconds(rows: CsvRows, row: list[str]) -> int:
    """The row's time, in nanoseconds since 1970: recorded arrivals have seven digits after the point."""
    text = rows.text(row, "TIMESTAMP")
    parts = _MOMENT.fullmatch(text)
    try:
        if parts is None:
            raise ValueError("not a date and a time")
        moment = datetime.fromisoformat(f"{parts['date']}T{parts['time']}{parts['offset'] or 'Z'}")
    except ValueError:
        fix = "give a date and time, for example 2023-11-16 18:17:03.9799600"
        raise rows.error(f"TIMESTAMP = {shown(text)}: {fix}") from None
    since = moment - _FIRST_DAY
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int((parts["fraction"] or "").ljust(9, "0"))
