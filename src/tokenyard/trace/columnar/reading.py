"""Reads a Parquet trace: its footer and its lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenyard.errors import TraceError
from tokenyard.trace.columnar.arrow import arrow, parquet
from tokenyard.trace.columnar.columns import KINDS
from tokenyard.trace.columnar.rows import TableRows
from tokenyard.trace.columnar.writing import VERSION

__all__ = ["ColumnarReader", "columnar_reader"]

_ROWS_AT_ONCE = 4_096


class ColumnarReader:
    """An open Parquet trace, ours or one that another program wrote under the same names."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self._file = file
        self._names = set(file.schema_arrow.names)
        footer = file.metadata.metadata or {}
        try:
            version = int(footer.get(b"tokenyard.columnar_version", VERSION))
            self.bad_lines = int(footer.get(b"tokenyard.bad_lines", 0))
            """Lines that are no JSON object, as the footer counts them."""
        except ValueError as error:
            raise TraceError(f"{path}: its footer is damaged: {error}") from None
        if version > VERSION:
            raise TraceError(
                f"{path}: columnar_version = {version}: newer than this program knows ({VERSION}); upgrade tokenyard, "
                "or convert it to JSON lines with the program that wrote it"
            )
        kind = footer.get(b"tokenyard.kind", b"").decode(errors="replace")
        self.kind: str = kind if kind in KINDS else self._guess()

    def _guess(self) -> str:
        """The kind of a file that another program wrote."""
        if "step" not in self._names:
            raise TraceError(f"{self.path}: not a trace: it has no column named step")
        return "steps" if "event" in self._names else "requests"

    def raw_lines(self) -> Iterator[bytes]:
        """Every line with a line feed, blank and bad ones included."""
        pa, table = arrow(), TableRows(self.kind)
        schema = pa.schema([field for field in table.schema if field.name in self._names])
        try:
            for batch in self._file.iter_batches(_ROWS_AT_ONCE, columns=schema.names):
                same = batch if batch.schema.equals(schema) else batch.select(schema.names).cast(schema)
                for line in table.lines(same):
                    yield line + b"\n"
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TraceError(f"{self.path}: damaged, or its columns have other types: {error}") from None

    def step_bounds(self) -> tuple[int, int] | None:
        """Least and greatest step, from the footer alone; None if there is none or it does not say."""
        groups = (self._file.metadata.row_group(group) for group in range(self._file.num_row_groups))
        columns = (group.column(i) for group in groups for i in range(group.num_columns))
        known = [each.statistics for each in columns if each.path_in_schema == "step" and each.is_stats_set]
        bounds = [(int(each.min), int(each.max)) for each in known if each.has_min_max]
        return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


@contextmanager
def columnar_reader(path: Path) -> Iterator[ColumnarReader]:
    """Open a Parquet trace. Raises MissingExtraError without pyarrow, TraceError if it is none or cannot be read."""
    pa, pq = arrow(), parquet()
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or "no Parquet file, or its end is missing"
        raise TraceError(f"{path}: {reason}") from None
    with file:
        yield ColumnarReader(path, file)
