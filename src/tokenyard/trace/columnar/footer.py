"""What a Parquet trace tells before anything is decoded: facts for a list, and the size of its row groups."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokenyard.files.bounds import Bounds
from tokenyard.trace.columnar.pages import PageSizes
from tokenyard.trace.columnar.row_groups import RowGroup
from tokenyard.trace.format.schema import StepSnapshot, TraceStart

__all__ = ["FooterFacts", "check_group"]

_VALUE_BYTES = 8
"""Memory that a value takes at least, be it stored in next to no room."""


class FooterFacts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A trace in a list; None where it does not tell."""

    policy: str | None = None
    host: str | None = None
    model: str | None = None
    gpu: str | None = None
    total_blocks: int | None = None
    cpu_total_blocks: int | None = None
    block_size: int | None = None
    bytes_per_block: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    first_step: int | None = None

    def take(self, record: object) -> bool:
        """Learn from a record; True if there is nothing more to learn."""
        if isinstance(record, TraceStart):
            self.policy, self.host, self.model, self.gpu = record.policy, record.host, record.model, record.gpu
            self.block_size, self.bytes_per_block = record.block_size, record.bytes_per_block
        elif isinstance(record, StepSnapshot):
            self.policy = record.policy or self.policy
            self.total_blocks, self.cpu_total_blocks = record.total_blocks, record.cpu_total_blocks
            self.max_num_seqs = record.max_num_running_reqs
            self.max_num_batched_tokens = record.max_num_scheduled_tokens
            self.first_step = record.step
            return True
        return False


def check_group(path: Path, number: int, group: RowGroup, pages: PageSizes, bounds: Bounds) -> None:
    """Raise FileError if row group ``number``, or a column of it, is larger than what is decoded.

    A column is as large as its footer says, or its pages, whichever is more. Raises ValueError for sizes below 0.
    """
    total = group.num_rows * _VALUE_BYTES
    least = group.num_rows
    for column in group.columns:
        least = min(least, column.num_values, column.unpacked, column.packed, column.start)
        size = max(column.unpacked, column.num_values * _VALUE_BYTES)
        if size <= bounds.column_bytes:
            size = max(size, pages.unpacked(column.start, column.packed, bounds.column_bytes))
        if size > bounds.column_bytes:
            what = f"column {column.path!r} of row group {number} is larger"
            raise bounds.exceeded(path, what, "column_mb")
        total += size
    if least < 0:
        raise ValueError(f"row group {number} has a size below 0")
    if total > bounds.row_group_bytes:
        raise bounds.exceeded(path, f"row group {number} is larger", "row_group_mb")
