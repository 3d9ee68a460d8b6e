"""Lines to columns.

Lines of the same fields are taken together, column by column: a trace repeats itself, and looking at whole columns
costs a tenth of looking at every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tokenyard.trace.columnar.columns import EXTRA, LAYOUT, RAW, arrow_schema, columns_of
from tokenyard.trace.columnar.layout import EXTRA as IN_EXTRA
from tokenyard.trace.columnar.layout import NULL, VALUE, WHOLE, Layout, LayoutTable, Style, style_of
from tokenyard.trace.columnar.shapes import Number, Shape

__all__ = ["Shredder"]

_EXACT = 1 << 53
"""Whole numbers up to this are exact as a fraction."""
_Group = tuple[Style | None, tuple[str, ...]]


class Shredder:
    """Turns the lines of one file into record batches; ``layouts`` fills as they come."""

    def __init__(self, kind: str, pa: Any) -> None:
        self.layouts = LayoutTable()
        self.bad_lines = 0
        """Lines that are no JSON object; blank ones do not count."""
        self.first_bad: int | None = None
        """Number of the first of them, from 1."""
        self.lines = 0
        self._columns = columns_of(kind)
        self._schema = arrow_schema(kind, pa)
        self._pa = pa
        self._likely: Style = "compact"

    def batch(self, lines: Sequence[bytes]) -> Any:
        """The record batch of some lines, given without their line feeds."""
        self._out: dict[str, list[Any]] = {name: [None] * len(lines) for name in self._schema.names}
        groups: dict[_Group, tuple[list[int], list[dict[str, Any]]]] = {}
        for row, line in enumerate(lines):
            record = self._parsed(row, line)
            if record is not None:
                style = self._likely if msgspec.json.encode(record) == line else style_of(line, record, self._likely)
                rows, records = groups.setdefault((style, tuple(record)), ([], []))
                rows.append(row)
                records.append(record)
        for (style, names), (rows, records) in groups.items():
            self._place_group(style, names, rows, records)
        for row in (row for row, layout in enumerate(self._out[LAYOUT]) if layout is None):
            self._out[RAW][row] = lines[row]
        self.lines += len(lines)
        arrays = [
            self._pa.array(self._to_arrow(name, values), field.type)
            for field, (name, values) in zip(self._schema, self._out.items(), strict=True)
        ]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _parsed(self, row: int, line: bytes) -> dict[str, Any] | None:
        try:
            record = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            return record
        if line and not line.isspace():
            self.bad_lines += 1
            self.first_bad = self.first_bad or self.lines + row + 1
        return None

    def _to_arrow(self, name: str, values: list[Any]) -> list[Any]:
        shape = self._columns.get(name)
        return values if shape is None else shape.to_arrow(values)

    def _place_group(
        self, style: Style | None, names: tuple[str, ...], rows: list[int], records: list[dict[str, Any]]
    ) -> None:
        """Place records that have the same fields."""
        columns = list(zip(*(record.values() for record in records), strict=True))
        places = [self._places(name, values) for name, values in zip(names, columns, strict=True)]
        if all(len(place) == 1 for place in places):
            self._place(Layout(style or "", names, "".join(places)), rows, columns)
            return
        apart: dict[str, list[int]] = {}
        for i, row_places in enumerate(zip(*(p * (len(rows) // len(p)) for p in places), strict=True)):
            apart.setdefault("".join(row_places), []).append(i)
        for row_place, members in apart.items():
            some = [[values[i] for i in members] for values in columns]
            self._place(Layout(style or "", names, row_place), [rows[i] for i in members], some)

    def _places(self, name: str, values: Sequence[Any]) -> str:
        """Where the values of a field go: one letter if all go the same way, else one for each."""
        shape = self._columns.get(name)
        if shape is None:
            return IN_EXTRA
        if shape.fits(values):
            return VALUE
        return "".join([_place_of(shape, value) for value in values])

    def _place(self, layout: Layout, rows: list[int], columns: Sequence[Sequence[Any]]) -> None:
        extra: list[tuple[str, Sequence[Any]]] = []
        for name, place, values in zip(layout.fields, layout.places, columns, strict=True):
            if place == IN_EXTRA:
                extra.append((name, values))
            elif place != NULL:
                out = self._out[name]
                for row, value in zip(rows, values, strict=True):
                    out[row] = value
        if extra:
            names = [name for name, _ in extra]
            out = self._out[EXTRA]
            for row, some in zip(rows, zip(*(values for _, values in extra), strict=True), strict=True):
                out[row] = msgspec.json.encode(dict(zip(names, some, strict=True))).decode()
        number = self.layouts.number(layout) if layout.style else None
        out = self._out[LAYOUT]
        for row in rows:
            out[row] = number


def _place_of(shape: Shape, value: Any) -> str:
    if value is None:
        return NULL
    if shape.fits((value,)):
        return VALUE
    if isinstance(shape, Number) and type(value) is int and -_EXACT <= value <= _EXACT:
        return WHOLE
    return IN_EXTRA
