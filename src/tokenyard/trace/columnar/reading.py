"""Reads a Parquet trace: its footer and its lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tokenyard.errors import FileError, TraceError
from tokenyard.files import Bounds, open_input
from tokenyard.trace.columnar.footer import FooterFacts, PageSizes, RowGroup, check_group, row_groups_of
from tokenyard.trace.columnar.rows import EXTRA, KINDS, RAW, TableRows, arrow, columns_of, is_plain, parquet, pieces
from tokenyard.trace.columnar.writing import VERSION

_ROWS_AT_ONCE = 4_096
_PIECE_BYTES = 8 << 20
"""Text of the rows that become lines at once, one row at least."""


class ColumnarReader:
    """An open Parquet trace, ours or one that another program wrote under the same names."""

    def __init__(self, path: Path, file: Any, source: BinaryIO, bounds: Bounds, row_groups: Sequence[RowGroup]) -> None:
        """``file`` is a ``ParquetFile`` over ``source``, with these row groups."""
        self.path = path
        self._file = file
        self._row_groups = row_groups
        self._descriptor = source.fileno()
        self._bounds = bounds
        self._packed_bytes = os.fstat(self._descriptor).st_size
        self._names = set(file.schema_arrow.names)
        self._footer = file.metadata.metadata or {}
        try:
            version = int(self._footer.get(b"tokenyard.columnar_version", VERSION))
            self.bad_lines = int(self._footer.get(b"tokenyard.bad_lines", 0))
            """Lines that are no JSON object, as the footer counts them."""
        except ValueError as error:
            raise TraceError(f"{path}: its footer is damaged: {error}") from None
        if version > VERSION:
            raise TraceError(
                f"{path}: columnar_version = {version}: newer than this program knows ({VERSION}); upgrade tokenyard, "
                "or convert it to JSON lines with the program that wrote it"
            )
        kind = self._footer.get(b"tokenyard.kind", b"").decode(errors="replace")
        self.kind: str = kind if kind in KINDS else self._guess()
        self._check_columns(file.schema_arrow)

    def _check_columns(self, schema: Any) -> None:
        """Raise TraceError unless some columns are those of a trace, of types whose size can be told."""
        known = [name for name in (*columns_of(self.kind), EXTRA, RAW) if name in self._names]
        if not known:
            raise TraceError(f"{self.path}: not a trace: it has none of the columns of one")
        for name in known:
            if schema.get_field_index(name) < 0:
                raise TraceError(f"{self.path}: column {name!r} is there more than once")
            if not is_plain(kind := schema.field(name).type):
                raise TraceError(f"{self.path}: column {name!r} is of type {str(kind)[:80]}, which no trace has")

    def _guess(self) -> str:
        """The kind of a file that another program wrote."""
        if "step" not in self._names:
            raise TraceError(f"{self.path}: not a trace: it has no column named step")
        return "steps" if "event" in self._names else "requests"

    def facts(self) -> FooterFacts:
        """What the trace says about itself, from the footer alone; nothing where another program wrote it."""
        try:
            return msgspec.json.decode(self._footer.get(b"tokenyard.facts", b"{}"), type=FooterFacts)
        except (ValueError, RecursionError):
            return FooterFacts()

    def check(self) -> None:
        """Raise TraceError if a row group is larger than what is decoded, which the footer and page headers tell."""
        with _damage_told(self.path):
            pages = PageSizes(self._descriptor)
            for number, group in enumerate(self._row_groups):
                check_group(self.path, number, group, pages, self._bounds)

    def raw_lines(self) -> Iterator[bytes]:
        """Every line with a line feed, blank and bad ones included."""
        pa, table = arrow(), TableRows(self.kind)
        schema = pa.schema([field for field in table.schema if field.name in self._names])
        line_number, left = 1, self._bounds.unpacked_bytes(self._packed_bytes)
        with _damage_told(self.path):
            pages = PageSizes(self._descriptor)
            for number, group in enumerate(self._row_groups):
                check_group(self.path, number, group, pages, self._bounds)
                for batch in self._file.iter_batches(_ROWS_AT_ONCE, row_groups=[number], columns=schema.names):
                    chosen = batch.select(schema.names)
                    for rows in pieces(chosen, _PIECE_BYTES, self._bounds, self.path, line_number):
                        line_number += rows.num_rows
                        for line in table.lines(rows.cast(schema)):
                            left -= len(line) + 1
                            if left < 0:
                                raise self._bounds.too_much(self.path)
                            yield line + b"\n"

    def step_bounds(self) -> tuple[int, int] | None:
        """Least and greatest step, from the footer alone; None if there is none or it does not say."""
        with _damage_told(self.path):
            columns = chain.from_iterable(group.columns for group in self._row_groups)
            bounds = [each.bounds for each in columns if each.path == "step" and each.bounds is not None]
            return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


@contextmanager
def columnar_reader(path: Path, bounds: Bounds | None = None) -> Iterator[ColumnarReader]:
    """Open a Parquet trace. Raises MissingExtraError without pyarrow, TraceError if it is none or cannot be read."""
    pa, pq = arrow(), parquet()
    bounds = bounds or Bounds.from_env()
    try:
        source = open_input(path)
    except FileError as error:
        raise TraceError(str(error)) from None
    with source:
        with _damage_told(path, "no Parquet file, or its end is missing"):
            row_groups = row_groups_of(path, source.fileno(), bounds)
            metadata = pq.read_metadata(pa.PythonFile(source, mode="r"))
            # Texts come as dictionaries, as they are stored: a text that stands in every row is held once.
            texts = [each.path for each in map(metadata.schema.column, range(len(metadata.schema))) if _is_text(each)]
            source.seek(0)
            file = pq.ParquetFile(
                pa.PythonFile(source, mode="r"),
                metadata=metadata,
                read_dictionary=texts,
                page_checksum_verification=True,
            )
            reader = ColumnarReader(path, file, source, bounds, row_groups)
        yield reader


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY" and column.path.partition(".")[0] in _TEXTS


_TEXTS = {name for kind in KINDS for name in columns_of(kind)} | {EXTRA, RAW}


@contextmanager
def _damage_told(path: Path, problem: str = "damaged, or its columns have other types") -> Iterator[None]:
    """Whatever a library says of damaged data becomes one TraceError."""
    pa = arrow()
    try:
        yield
    except FileError as error:
        raise TraceError(str(error)) from None
    except MemoryError:
        raise TraceError(f"{path}: {problem}: it asks for more memory than there is") from None
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise TraceError(f"{path}: {problem}: {reason}") from None
