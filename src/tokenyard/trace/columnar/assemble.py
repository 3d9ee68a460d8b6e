"""Columns to lines: the very bytes, where the file still says how they were written; else the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenyard.trace.columnar.columns import EXTRA, LAYOUT, RAW, columns_of
from tokenyard.trace.columnar.layout import EXTRA as IN_EXTRA
from tokenyard.trace.columnar.layout import NULL, VALUE, WHOLE, Layout, encoder_of
from tokenyard.trace.columnar.shapes import Shape

__all__ = ["Assembler"]


class Assembler:
    """Turns the record batches of one file back into lines, in order.

    A file that another program wrote, or filtered and lost the footer of, has no ``layouts``: its records then have the
    fields that are not null, in the order of the schema.
    """

    def __init__(self, kind: str, layouts: Sequence[Layout]) -> None:
        self._shapes = columns_of(kind)
        self._layouts = layouts

    def lines(self, batch: Any) -> list[bytes]:
        """The lines of a batch, without line feeds."""
        if not batch.num_rows:
            return []
        out: list[bytes] = [b""] * batch.num_rows
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        numbers = _numbers(columns, batch.num_rows, len(self._layouts))
        raw = columns[RAW].to_pylist() if RAW in columns else [None] * batch.num_rows
        for number, rows in _groups(numbers):
            if number >= 0:
                part = {name: column.take(rows) for name, column in columns.items()}
                lines = self._laid_out(self._layouts[number], part, len(rows))
                for row, line in zip(rows.tolist(), lines, strict=True):
                    out[row] = line
        if (numbers < 0).any():
            self._without_layout(batch, raw, (numbers < 0).nonzero()[0], out)
        for row, line in enumerate(raw):
            if line is not None:
                out[row] = line
        return out

    def _laid_out(self, layout: Layout, columns: dict[str, Any], count: int) -> Iterator[bytes]:
        extra: list[dict[str, Any]] = []
        if IN_EXTRA in layout.places:
            extra = [msgspec.json.decode(text) for text in columns[EXTRA].to_pylist()]
        values: list[Sequence[Any]] = []
        for name, place in zip(layout.fields, layout.places, strict=True):
            if place == VALUE:
                values.append(self._shapes[name].from_arrow(columns[name]))
            elif place == WHOLE:
                values.append([int(value) for value in self._shapes[name].from_arrow(columns[name])])
            elif place == NULL:
                values.append([None] * count)
            else:
                values.append([each[name] for each in extra])
        encode = encoder_of(layout.style)
        if not values:
            return (encode({}) for _ in range(count))
        return (encode(dict(zip(layout.fields, row, strict=True))) for row in zip(*values, strict=True))

    def _without_layout(self, batch: Any, raw: Sequence[bytes | None], rows: Any, out: list[bytes]) -> None:
        """Rows that do not say how they were written."""
        wanted = [row for row in rows.tolist() if raw[row] is None]
        if not wanted:
            return
        part = batch.take(wanted)
        columns = {name: _values(self._shapes[name], column) for name, column in _known(part, self._shapes)}
        extra: list[Any] = part.column(EXTRA).to_pylist() if EXTRA in part.schema.names else [None] * len(wanted)
        for i, row in enumerate(wanted):
            record = {name: values[i] for name, values in columns.items() if values[i] is not None}
            if extra[i] is not None:
                record |= msgspec.json.decode(extra[i])
            out[row] = msgspec.json.encode(record)


def _known(batch: Any, shapes: dict[str, Shape]) -> Iterator[tuple[str, Any]]:
    names = set(batch.schema.names)
    return ((name, batch.column(name)) for name in shapes if name in names)


def _values(shape: Shape, column: Any) -> list[Any]:
    """The values of a column, None where there is none."""
    values = iter(shape.from_arrow(column.drop_null()))
    return [next(values) if valid else None for valid in column.is_valid().to_pylist()]


def _numbers(columns: dict[str, Any], count: int, known: int) -> Any:
    """The layout of each row, -1 for a row without."""
    if LAYOUT not in columns or not known:
        return np.full(count, -1)
    numbers = columns[LAYOUT].fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(numbers < known, numbers, -1)


def _groups(numbers: Any) -> Iterator[tuple[int, Any]]:
    """(layout, its rows) for every layout of a batch."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)
