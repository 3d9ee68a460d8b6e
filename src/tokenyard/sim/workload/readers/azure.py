"""Azure LLM inference traces: CSV with ``TIMESTAMP``, ``ContextTokens`` and ``GeneratedTokens``.

They record no prefixes: every prompt is unique. The first request arrives at 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from tokenyard.sim.workload.readers.lines import CsvRows, ReadOptions
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import StreamTokens, seed_of

__all__ = ["read_azure"]


def read_azure(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per row; rows must be in order of time, and a length of 0 tokens counts as 1."""
    rows = CsvRows(path, "TIMESTAMP", "ContextTokens", "GeneratedTokens")
    start: np.datetime64 | None = None
    last = 0.0
    for row in islice(rows, options.limit):
        moment = _moment(rows, row)
        start = moment if start is None else start
        arrival = float((moment - start) / np.timedelta64(1, "ns")) / 1e9
        if arrival < last:
            raise rows.error(f"TIMESTAMP = {rows.text(row, 'TIMESTAMP')!r}: is earlier than the row before")
        last = arrival
        seed = seed_of("azure", options.seed, rows.line)
        yield WorkloadRequest(
            request_id=f"azure_{rows.line:06d}",
            prompt=StreamTokens.unique(seed, max(1, rows.count(row, "ContextTokens"))),
            max_tokens=max(1, rows.count(row, "GeneratedTokens")),
            arrival_time=arrival,
            output_seed=seed,
        )


def _moment(rows: CsvRows, row: list[str]) -> np.datetime64:
    text = rows.text(row, "TIMESTAMP")
    try:
        moment = np.datetime64(text, "ns")
    except ValueError:
        moment = None
    if moment is None or np.isnat(moment):
        raise rows.error(f"TIMESTAMP = {text!r}: give a date and time, for example 2023-11-16 18:17:03.9799600")
    return moment
