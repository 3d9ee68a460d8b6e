"""Reads a Parquet trace: its footer, its lines, or the lines of some steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenyard.errors import TraceError
from tokenyard.trace.columnar.arrow import arrow, parquet
from tokenyard.trace.columnar.assemble import Assembler
from tokenyard.trace.columnar.columns import EXTRA, LAYOUT, RAW, arrow_schema, columns_of
from tokenyard.trace.columnar.footer import VERSION, Footer

__all__ = ["ColumnarReader", "columnar_reader"]

_ROWS_AT_ONCE = 4_096


class ColumnarReader:
    """An open Parquet trace, ours or one that another program wrote under the same names."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self.rows: int = file.metadata.num_rows
        self._file = file
        self._names = set(file.schema_arrow.names)
        self.footer = self._footer()
        self.kind: str = self.footer.kind or self._guess()
        self._columns = [name for name in (*columns_of(self.kind), EXTRA, RAW, LAYOUT) if name in self._names]

    def _footer(self) -> Footer:
        try:
            footer = Footer.of(self._file.metadata.metadata)
        except ValueError as error:
            raise TraceError(f"{self.path}: its footer is damaged: {error}") from None
        if (footer.columnar_version or VERSION) > VERSION:
            raise TraceError(
                f"{self.path}: columnar_version = {footer.columnar_version}: newer than this program knows "
                f"({VERSION}); upgrade tokenyard, or convert it to JSON lines with the program that wrote it"
            )
        return footer

    def _guess(self) -> str:
        """The kind of a file that another program wrote."""
        if "step" not in self._names:
            raise TraceError(f"{self.path}: not a trace: it has no column named step")
        return "steps" if "event" in self._names else "requests"

    def raw_lines(self) -> Iterator[bytes]:
        """Every line, without its line feed, blank and bad ones included."""
        assembler = Assembler(self.kind, self.footer.layouts)
        for batch in self._batches(range(self._file.num_row_groups)):
            yield from assembler.lines(batch)

    def step_lines(self, first: int, last: int) -> Iterator[bytes]:
        """The lines whose ``step`` lies within ``first`` and ``last``; other row groups are not read."""
        compute = _compute()
        assembler = Assembler(self.kind, self.footer.layouts)
        for batch in self._batches(self._groups_with(first, last)):
            step = batch.column("step")
            inside = compute.and_(compute.greater_equal(step, first), compute.less_equal(step, last))
            yield from assembler.lines(batch.filter(inside))

    def step_bounds(self) -> tuple[int, int] | None:
        """Least and greatest step, from the footer alone; None if there is none or it does not say."""
        bounds = [self._bounds(group) for group in range(self._file.num_row_groups)]
        known = [each for each in bounds if each is not None]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    def _groups_with(self, first: int, last: int) -> list[int]:
        wanted = []
        for group in range(self._file.num_row_groups):
            bounds = self._bounds(group)
            if bounds is None or (bounds[0] <= last and bounds[1] >= first):
                wanted.append(group)
        return wanted

    def _bounds(self, group: int) -> tuple[int, int] | None:
        metadata = self._file.metadata.row_group(group)
        for i in range(metadata.num_columns):
            column = metadata.column(i)
            if column.path_in_schema == "step":
                statistics = column.statistics
                if statistics is not None and statistics.has_min_max:
                    return int(statistics.min), int(statistics.max)
        return None

    def _batches(self, groups: Any) -> Iterator[Any]:
        pa = arrow()
        wanted = arrow_schema(self.kind, pa)
        schema = pa.schema([wanted.field(name) for name in self._columns])
        try:
            for batch in self._file.iter_batches(_ROWS_AT_ONCE, row_groups=list(groups), columns=self._columns):
                yield batch if batch.schema.equals(schema) else batch.select(self._columns).cast(schema)
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{self.path}: damaged, or its columns have other types: {error}") from None


@contextmanager
def columnar_reader(path: Path) -> Iterator[ColumnarReader]:
    """Open a Parquet trace. Raises MissingExtraError without pyarrow, TraceError if it is none or cannot be read."""
    pa, pq = arrow(), parquet()
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or "no Parquet file, or its end is missing"
        raise TraceError(f"{path}: {reason}") from None
    with file:
        yield ColumnarReader(path, file)


def _compute() -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - an extra

    return pc
