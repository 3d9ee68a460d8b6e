"""Writes a Parquet trace, a row group at a time, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenyard.errors import TraceError
from tokenyard.trace.columnar.arrow import arrow, parquet
from tokenyard.trace.columnar.columns import arrow_schema
from tokenyard.trace.columnar.footer import VERSION, Footer
from tokenyard.trace.columnar.shred import Shredder

__all__ = ["COMPRESSIONS", "ColumnarWriter", "columnar_writer"]

COMPRESSIONS = {"zstd": 9, "gzip": 6, "snappy": None, "none": None}
"""Name -> level. zstd is smallest and quickest to read; some browsers' readers know only the others."""
_BATCH_BYTES = 2 << 20
"""JSON text that is taken apart at once."""
_GROUP_BYTES = 32 << 20
"""JSON text of a row group: what a reader has to hold at once."""
_GROUP_ROWS = 1 << 17
_WITH_STATISTICS = ["step", "ts", "event"]
"""Columns by which a reader leaves row groups out. Ids are not among them: they may be of any length."""
_UNLIKE_EACH_OTHER = {"step": "DELTA_BINARY_PACKED", "ts": "BYTE_STREAM_SPLIT", "step_seconds": "BYTE_STREAM_SPLIT"}
"""Columns for which a dictionary is of no use, and their encoding."""


class ColumnarWriter:
    """Takes lines, in order."""

    def __init__(self, sink: Any, kind: str, compression: str) -> None:
        self._pa = arrow()
        self._shredder = Shredder(kind, self._pa)
        self._kind = kind
        schema = arrow_schema(kind, self._pa)
        self._file = parquet().ParquetWriter(
            sink,
            schema,
            compression=compression,
            compression_level=COMPRESSIONS[compression],
            use_dictionary=[path for path in _leaves(schema) if path not in _UNLIKE_EACH_OTHER],
            column_encoding={name: how for name, how in _UNLIKE_EACH_OTHER.items() if name in schema.names},
            write_statistics=_WITH_STATISTICS,
            store_schema=False,
        )
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._batches: list[Any] = []
        self._group_bytes = self._group_rows = 0
        self._digest = hashlib.sha256()
        self._newline = True

    @property
    def bad_lines(self) -> int:
        """Lines so far that are no JSON object; they are kept as they are."""
        return self._shredder.bad_lines

    @property
    def first_bad(self) -> int | None:
        """Number of the first bad line, from 1."""
        return self._shredder.first_bad

    @property
    def lines(self) -> int:
        """Lines so far."""
        return self._shredder.lines + len(self._lines)

    def add(self, line: bytes) -> None:
        """Take one line, its line feed included."""
        self._digest.update(line)
        self._newline = line.endswith(b"\n")
        self._lines.append(line[:-1] if self._newline else line)
        self._line_bytes += len(line)
        if self._line_bytes >= _BATCH_BYTES:
            self._shred()

    def finish(self) -> None:
        """Write what is left, and the footer."""
        self._shred()
        self._write_group()
        footer = Footer(
            kind=self._kind,
            columnar_version=VERSION,
            lines=self._shredder.lines,
            bad_lines=self.bad_lines,
            final_newline=self._newline,
            sha256=self._digest.hexdigest(),
            layouts=self._shredder.layouts.layouts,
        )
        self._file.add_key_value_metadata(footer.pairs())
        self._file.close()

    def abandon(self) -> None:
        """Close without a footer: what was written is of no use."""
        self._file.close()

    def _shred(self) -> None:
        if self._lines:
            self._batches.append(self._shredder.batch(self._lines))
            self._group_bytes += self._line_bytes
            self._group_rows += len(self._lines)
            self._lines, self._line_bytes = [], 0
            if self._group_bytes >= _GROUP_BYTES or self._group_rows >= _GROUP_ROWS:
                self._write_group()

    def _write_group(self) -> None:
        if self._batches:
            self._file.write_table(self._pa.Table.from_batches(self._batches), row_group_size=self._group_rows)
            self._batches, self._group_bytes, self._group_rows = [], 0, 0


@contextmanager
def columnar_writer(path: Path, kind: str, compression: str = "zstd") -> Iterator[ColumnarWriter]:
    """A writer of ``path``, which appears when everything is written and not before.

    Raises MissingExtraError without pyarrow, TraceError if the file cannot be written.
    """
    arrow()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as sink:
            writer = ColumnarWriter(sink, kind, compression)
            try:
                yield writer
            except BaseException:
                writer.abandon()
                raise
            writer.finish()
        unfinished.replace(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _leaves(schema: Any) -> Iterator[str]:
    """Parquet's paths of all columns that hold values."""
    for field in schema:
        yield from _leaves_of(field.name, field.type)


def _leaves_of(path: str, type_: Any) -> Iterator[str]:
    types = arrow().types
    if types.is_map(type_):
        yield f"{path}.key_value.key"
        yield from _leaves_of(f"{path}.key_value.value", type_.item_type)
    elif types.is_list(type_):
        yield from _leaves_of(f"{path}.list.element", type_.value_type)
    elif types.is_struct(type_):
        for field in type_:
            yield from _leaves_of(f"{path}.{field.name}", field.type)
    else:
        yield path
