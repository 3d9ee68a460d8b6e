"""Reads Parquet traces: a process of its own decodes them, within bounds, and what it says is read line by line.

pyarrow decodes whatever it is given, and a file that was made for the purpose can end its process, or ask for far more
memory than it has bytes. What comes of that here is one TraceError, of a file that could not be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tokenyard.errors import FileError, MissingExtraError, TraceError
from tokenyard.files import Bounds, arrow, open_input
from tokenyard.trace.columnar.child import (
    ChildProcess,
    EndedError,
    OutOfMemoryError,
    OutOfTimeError,
    keep_memory_within,
)
from tokenyard.trace.columnar.rows import EXTRA, KINDS, RAW, TableRows, columns_of, is_plain, parquet, pieces
from tokenyard.trace.columnar.writing import VERSION, FooterFacts

ROWS_AT_ONCE = 4_096
_PIECE_BYTES = 8 << 20
"""Text of the rows that become lines at once, one row at least."""
_SECONDS = 60.0
"""Time for each such piece, and for a footer."""
_LONGEST_HEAD = 1 << 20
"""Bytes of the description of a footer."""
_MAGIC = b"PAR1"
_LINE, _ERROR, _END = b" ", b"!", b"."
"""How a line begins that the other process says: with a line of the trace, an error as JSON, or nothing more."""


class ColumnarHead(msgspec.Struct, kw_only=True):
    """What the footer of a Parquet trace says."""

    kind: str
    bad_lines: int = 0
    """Lines that are no JSON object."""
    facts: FooterFacts = msgspec.field(default_factory=FooterFacts)
    """No facts where another program wrote the file."""
    last_step: int | None = None
    """None where the footer does not record it."""


# ---------------------------------------------------------------------------------------------------------------------
# On this side: what the other process says is checked, and whatever ends it is an error that names the file.


def columnar_lines(path: Path, bounds: Bounds | None = None) -> Iterator[bytes]:
    """Every line of a Parquet trace with a line feed, blank and bad ones included.

    Raises MissingExtraError without pyarrow, TraceError if the file is none, cannot be read or exceeds a bound.
    """
    bounds = bounds or Bounds.from_env()
    longest, left = bounds.line_bytes + len(_LINE), bounds.unpacked_bytes(_packed_bytes(path))
    with ChildProcess() as child:
        said, line = child.call(_say_lines, path, bounds, seconds=_SECONDS), b""
        for number in count(1):
            line = said.readline(longest + 1)
            if line[:1] == _LINE and len(line) > longest:
                raise TraceError(str(bounds.exceeded(path, f"line {number:,} is longer", "line_mb")))
            if line[:1] != _LINE or not line.endswith(b"\n"):
                break
            left -= len(line) - len(_LINE)
            if left < 0:
                raise TraceError(str(bounds.too_much(path)))
            yield line[1:]
        if line != _END + b"\n":
            raise _error(child, line, path, bounds)


def columnar_head(path: Path) -> ColumnarHead:
    """What the footer of a Parquet trace says; raises as :func:`columnar_lines`."""
    with ColumnarHeads() as heads:
        return heads.head(path)


class ColumnarHeads:
    """Reads the footers of many files by one process, which begins with the first file.

    If a file ends the process, the next one has a new one.
    """

    def __init__(self) -> None:
        self._child: ChildProcess | None = None

    def head(self, path: Path, bounds: Bounds | None = None) -> ColumnarHead:
        """What the footer of a file says; raises as :func:`columnar_lines`."""
        bounds = bounds or Bounds.from_env()
        _packed_bytes(path)
        child = self._child = self._child or ChildProcess()
        line = child.call(_say_head, path, bounds, seconds=_SECONDS).readline(_LONGEST_HEAD)
        if line[:1] == _LINE:
            return msgspec.json.decode(line[1:], type=ColumnarHead)
        error = _error(child, line, path, bounds)
        if line[:1] != _ERROR:
            self.close()
        raise error

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> ColumnarHeads:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _packed_bytes(path: Path) -> int:
    if find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "analysis")
    try:
        with open_input(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(_MAGIC), 0))
            end = file.read()
    except FileError as error:
        raise TraceError(str(error)) from None
    if end != _MAGIC:
        raise TraceError(f"{path}: no Parquet file, or its end is missing")
    return size


def _error(child: ChildProcess, line: bytes, path: Path, bounds: Bounds) -> TraceError:
    """The error for a process that wrote ``line`` in the place of a line of the trace, or ended."""
    if line[:1] == _ERROR:
        return TraceError(msgspec.json.decode(line[1:], type=str))
    try:
        child.raise_end()
    except OutOfMemoryError:
        return TraceError(str(bounds.exceeded(path, "decoding it takes more memory", "parquet_mb")))
    except OutOfTimeError:
        return TraceError(f"{path}: damaged: it takes longer than {_SECONDS:g} s to decode a few rows of it")
    except EndedError as error:
        variable = "TOKENYARD_MAX_PARQUET_MB"
        problem = f"damaged, or larger than {bounds.parquet_mb} MiB ({variable})"
        return TraceError(f"{path}: {problem}: the process that decoded it ended with {error}")


# ---------------------------------------------------------------------------------------------------------------------
# In the other process.


def _say_lines(path: Path, bounds: Bounds) -> Iterator[bytes]:
    try:
        with open_columnar(path, bounds) as trace:
            for lines in trace.pieces():
                yield b"".join(b"%b%b\n" % (_LINE, line) for line in lines)
    except TraceError as error:
        yield _ERROR + msgspec.json.encode(str(error)) + b"\n"
    else:
        yield _END + b"\n"


def _say_head(path: Path, bounds: Bounds) -> Iterator[bytes]:
    try:
        with open_columnar(path, bounds) as trace:
            said = _LINE + msgspec.json.encode(trace.head())
    except TraceError as error:
        said = _ERROR + msgspec.json.encode(str(error))
    yield said + b"\n"


class ColumnarTrace:
    """An open Parquet trace, ours or one that another program wrote under the same names."""

    def __init__(self, path: Path, file: Any, bounds: Bounds) -> None:
        """``file`` is a ``ParquetFile``."""
        self._path = path
        self._file = file
        self._bounds = bounds
        self._names = set(file.schema_arrow.names)
        self._footer = file.metadata.metadata or {}
        version = self._footer_number(b"tokenyard.columnar_version", VERSION)
        if version > VERSION:
            raise TraceError(
                f"{path}: columnar_version = {version}: newer than this program knows ({VERSION}); upgrade tokenyard, "
                "or convert it to JSON lines with the program that wrote it"
            )
        kind = self._footer.get(b"tokenyard.kind", b"").decode(errors="replace")
        self._kind: str = kind if kind in KINDS else self._guess()
        self._check_columns(file.schema_arrow)

    def _footer_number(self, name: bytes, default: int) -> int:
        try:
            return int(self._footer.get(name, default))
        except ValueError as error:
            raise TraceError(f"{self._path}: its footer is damaged: {error}") from None

    def _check_columns(self, schema: Any) -> None:
        """Raise TraceError unless some columns are those of a trace, of types whose size is known."""
        known = [name for name in (*columns_of(self._kind), EXTRA, RAW) if name in self._names]
        if not known:
            raise TraceError(f"{self._path}: not a trace: it has none of the columns of one")
        for name in known:
            if schema.get_field_index(name) < 0:
                raise TraceError(f"{self._path}: column {name!r} is there more than once")
            if not is_plain(kind := schema.field(name).type):
                raise TraceError(f"{self._path}: column {name!r} is of type {str(kind)[:80]}, which no trace has")

    def _guess(self) -> str:
        """The kind of a file that another program wrote."""
        if "step" not in self._names:
            raise TraceError(f"{self._path}: not a trace: it has no column named step")
        return "steps" if "event" in self._names else "requests"

    def head(self) -> ColumnarHead:
        """What the footer says."""
        try:
            facts = msgspec.json.decode(self._footer.get(b"tokenyard.facts", b"{}"), type=FooterFacts)
        except (ValueError, RecursionError):
            facts = FooterFacts()
        return ColumnarHead(
            kind=self._kind,
            bad_lines=self._footer_number(b"tokenyard.bad_lines", 0),
            facts=facts,
            last_step=self._last_step(),
        )

    def _last_step(self) -> int | None:
        metadata = self._file.metadata
        paths = [metadata.schema.column(i).path for i in range(len(metadata.schema))]
        if "step" not in paths:
            return None
        groups = (metadata.row_group(i).column(paths.index("step")) for i in range(metadata.num_row_groups))
        told = [each.statistics.max for each in groups if each.is_stats_set and each.statistics.has_min_max]
        return max((int(step) for step in told), default=None)

    def pieces(self) -> Iterator[list[bytes]]:
        """Every line, without line feeds, blank and bad ones included, some of them at a time."""
        table = TableRows(self._kind)
        schema = arrow().schema([field for field in table.schema if field.name in self._names])
        line_number = 1
        with _damage_told(self._path):
            for batch in self._batches(schema.names):
                chosen = batch.select(schema.names)
                for rows in pieces(chosen, _PIECE_BYTES, self._bounds, self._path, line_number):
                    line_number += rows.num_rows
                    yield table.lines(rows.cast(schema))

    def _batches(self, names: list[str]) -> Iterator[Any]:
        """A row group at a time: pyarrow cannot give back a list of texts that goes over the end of one."""
        for number in range(self._file.metadata.num_row_groups):
            yield from self._file.iter_batches(ROWS_AT_ONCE, row_groups=[number], columns=names, use_threads=False)


@contextmanager
def open_columnar(path: Path, bounds: Bounds) -> Iterator[ColumnarTrace]:
    """Decode a Parquet trace in this process, from now on with ``bounds.parquet_mb``; TraceError if that cannot be.

    Only for a process that may end: what pyarrow makes of a file that was forged is anything.
    """
    pa, pq = arrow(), parquet()
    keep_memory_within(bounds.parquet_mb)
    with _damage_told(path), open_input(path) as source:
        with _damage_told(path, "no Parquet file, or its end is missing"):
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
            trace = ColumnarTrace(path, file, bounds)
        yield trace


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY" and column.path.partition(".")[0] in _TEXTS


_TEXTS = {name for kind in KINDS for name in columns_of(kind)} | {EXTRA, RAW}


_NO_THREAD = "Failed to launch worker thread"
"""What pyarrow says, of an error of no kind, where a thread's stack does not fit the memory that is left."""


@contextmanager
def _damage_told(path: Path, problem: str = "damaged, or its columns have other types") -> Iterator[None]:
    """Whatever a library says of damaged data becomes one TraceError; of memory, a MemoryError."""
    pa = arrow()
    try:
        yield
    except FileError as error:
        raise TraceError(str(error)) from None
    except MemoryError:  # pyarrow's own is one, and an ArrowException
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        if _NO_THREAD in str(error):
            raise MemoryError from None
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise TraceError(f"{path}: {problem}: {reason}") from None
