"""Writes a Parquet trace, a row group at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import TraceError
from tokenyard.files import arrow, written_whole
from tokenyard.trace.columnar.rows import RAW, TableRows, parquet
from tokenyard.trace.schema import StepSnapshot, TraceStart

VERSION = 1
"""Raised when a reader of the version before would read something wrong."""
COMPRESSIONS = {"zstd": 9, "gzip": 6, "snappy": None, "none": None}
"""Name -> level. zstd is smallest and quickest to read; some browsers' readers know only the others."""
BATCH_BYTES = 2 << 20
"""JSON text that is turned into columns at once."""
GROUP_BYTES = 32 << 20
"""JSON text of a row group: what a reader has to hold at once."""
_GROUP_ROWS = 1 << 17
_LINES_WITH_FACTS = 200
"""A snapshot comes within so many lines, not counting arrivals before the first step."""
_WITH_STATISTICS = ["step", "ts", "event"]
"""Columns by which a reader leaves row groups out. Ids are not among them: they may be of any length."""
_UNLIKE_EACH_OTHER = {"step": "DELTA_BINARY_PACKED", "ts": "BYTE_STREAM_SPLIT", "step_seconds": "BYTE_STREAM_SPLIT"}
"""Columns for which a dictionary is of no use, and their encoding."""


class FooterFacts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a trace in a list says of itself; None where it does not record it."""

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


class ColumnarWriter:
    """Takes lines, in order."""

    def __init__(self, sink: Any, kind: str, compression: str) -> None:
        self.lines = 0
        """Lines so far."""
        self.records = 0
        """Lines so far that are a JSON object."""
        self.bad_lines = 0
        """Lines so far that are no JSON object, blank ones not counted; they are kept as they are."""
        self.first_bad: int | None = None
        """Number of the first bad line, from 1."""
        self._kind = kind
        self._facts = FooterFacts()
        self._facts_are_known = kind == "requests"
        self._table = TableRows(kind)
        self._file = _parquet_file(sink, self._table.schema, compression)
        self._rows: list[Any] = []
        self._row_bytes = 0
        self._batches: list[Any] = []
        self._group_bytes = self._group_rows = 0

    def add(self, line: bytes) -> None:
        """Take one line, its line feed included."""
        row = self._table.row(line.removesuffix(b"\n"))
        self.lines += 1
        if not self._facts_are_known:
            self._facts_are_known = self._facts.take(self._table.record) or self.lines == _LINES_WITH_FACTS
        self.records += RAW not in row
        if row.get(RAW, b"").strip():
            self.bad_lines += 1
            self.first_bad = self.first_bad or self.lines
        self._rows.append(row)
        self._row_bytes += len(line)
        if self._row_bytes >= BATCH_BYTES:
            self._make_batch()

    def finish(self) -> None:
        """Write what is left, and the footer."""
        self._make_batch()
        self._write_group()
        footer = {"kind": self._kind, "columnar_version": VERSION, "bad_lines": self.bad_lines}
        named = {f"tokenyard.{name}": str(value) for name, value in footer.items()}
        self._file.add_key_value_metadata(named | {"tokenyard.facts": msgspec.json.encode(self._facts).decode()})
        self._file.close()

    def abandon(self) -> None:
        """Close without a footer: what was written is of no use."""
        self._file.close()

    def _make_batch(self) -> None:
        if self._rows:
            self._batches.append(self._table.batch(self._rows))
            self._group_bytes += self._row_bytes
            self._group_rows += len(self._rows)
            self._rows, self._row_bytes = [], 0
            if self._group_bytes >= GROUP_BYTES or self._group_rows >= _GROUP_ROWS:
                self._write_group()

    def _write_group(self) -> None:
        if self._batches:
            self._file.write_table(arrow().Table.from_batches(self._batches), row_group_size=self._group_rows)
            self._batches, self._group_bytes, self._group_rows = [], 0, 0


def _parquet_file(sink: Any, schema: Any, compression: str) -> Any:
    return parquet().ParquetWriter(
        sink,
        schema,
        compression=compression,
        compression_level=COMPRESSIONS[compression],
        use_dictionary=[path for field in schema for path in _leaves(field.name, field.type)],
        column_encoding={name: how for name, how in _UNLIKE_EACH_OTHER.items() if name in schema.names},
        write_statistics=_WITH_STATISTICS,
        write_page_checksum=True,
        store_schema=False,
    )


@contextmanager
def columnar_writer(path: Path, kind: str, compression: str = "zstd") -> Iterator[ColumnarWriter]:
    """A writer of ``path``, which appears when everything is written and not before.

    Raises MissingExtraError without pyarrow, TraceError if the file cannot be written.
    """
    arrow()
    with written_whole(path, lambda problem: TraceError(f"{path}: {problem}")) as sink:
        writer = ColumnarWriter(sink, kind, compression)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.finish()


def _leaves(path: str, type_: Any) -> Iterator[str]:
    """Parquet's paths of the columns that hold a field's values and gain by a dictionary."""
    types = arrow().types
    if types.is_map(type_):
        yield f"{path}.key_value.key"
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    elif types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif path not in _UNLIKE_EACH_OTHER:
        yield path
