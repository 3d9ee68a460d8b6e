"""A table of columns, and its way into Arrow, pandas and polars.

Numbers are NumPy columns, NaN where there is no number; texts are columns of objects, None where there is no text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from math import isnan
from typing import TYPE_CHECKING, Any, ClassVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.files import arrow
from tokenyard.redaction import plain

# ---------------------------------------------------------------------------------------------------------------------
# What every answer of a question can do: be printed, be shown in a notebook, become a dictionary.


class Printable:
    """Mixed into answers, in front of ``msgspec.Struct``: ``print`` shows what the command line prints.

    ``repr`` is one line, so that an answer at the end of a cell or of a line in a terminal says what it is.
    """

    __slots__ = ()
    printer: ClassVar[str]
    """Prints it on a console: ``module:function``, loaded when it is printed."""

    def to_dict(self) -> dict[str, Any]:
        """All of it, as ``--json`` prints it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def summary(self) -> str:
        """What ``repr`` says besides the name of the class."""
        raise NotImplementedError

    def as_table(self) -> RowTable:
        """Its figures as a table, whose rows and columns the class names."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """:meth:`as_table` as a ``pyarrow.Table``."""
        return self.as_table().to_arrow()

    def to_pandas(self) -> Any:
        """:meth:`as_table` as a ``pandas.DataFrame``."""
        return self.as_table().to_pandas()

    def to_polars(self) -> Any:
        """:meth:`as_table` as a ``polars.DataFrame``."""
        return self.as_table().to_polars()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def __str__(self) -> str:
        from tokenyard.explain.console import printed  # noqa: PLC0415 - rich is loaded where something is printed

        module, _, name = self.printer.partition(":")
        show = getattr(import_module(module), name)
        text: str = printed(lambda console: show(self, console))
        return text

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(str(self))}</pre>"


# ---------------------------------------------------------------------------------------------------------------------

Column = npt.NDArray[Any]
_SHOWN = 10
"""Rows in a notebook, and in a terminal."""
_NAMED = 24
"""Columns that ``repr`` names."""
_WIDTH = 110
"""Characters of a line in a terminal."""


class RowTable:
    """Columns of equal length, by name.

    ``table["ttft_ms"]``, or ``table.ttft_ms``, is a NumPy array, read-only; ``table[:3]`` and ``table.head()`` are some
    of the rows, ``table[0]`` is one; ``len(table)`` counts them. Whatever takes the Arrow PyCapsule interface (polars,
    duckdb, pyarrow, pandas from 3.0 on) takes the table as it is, if pyarrow is installed.
    """

    __slots__ = ("_columns", "name")

    def __init__(self, name: str, columns: Mapping[str, Column]) -> None:
        self.name = name
        """What the rows are."""
        self._columns = dict(columns)
        for column in self._columns.values():
            column.flags.writeable = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns."""
        return len(self), len(self._columns)

    @overload
    def __getitem__(self, which: str) -> Column: ...
    @overload
    def __getitem__(self, which: slice) -> RowTable: ...
    @overload
    def __getitem__(self, which: int) -> dict[str, Any]: ...
    def __getitem__(self, which: str | slice | int) -> Column | RowTable | dict[str, Any]:
        """A column by its name, shape ``[rows]``; the table of some rows by a slice; a row by its number.

        ConfigError for a name that is none, IndexError beyond the rows.
        """
        if isinstance(which, slice):
            return RowTable(self.name, {name: column[which] for name, column in self._columns.items()})
        if isinstance(which, int):
            number = range(len(self))[which]
            return next(iter(self[number : number + 1]))
        if not isinstance(which, str) or which not in self._columns:
            raise ConfigError("column", which, f"use one of: {', '.join(self._columns)}")
        return self._columns[which]

    def head(self, rows: int = 5) -> RowTable:
        """The table of the first rows."""
        return self[: max(rows, 0)]

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that is there

        def __getattr__(self, name: str) -> Column:
            if name[:1] != "_" and name in self._columns:
                return self._columns[name]
            raise AttributeError(f"a table of {self.name} has no attribute and no column {name!r}")

    def __dir__(self) -> list[str]:
        """What it has, and its columns, for completion."""
        return [*super().__dir__(), *(name for name in self._columns if name.isidentifier())]

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Row by row, as dictionaries; None for what is missing, as JSON has no NaN."""
        columns = [
            [None if value != value else value for value in column.tolist()]  # noqa: PLR0124  # NaN is not itself
            for column in self._columns.values()
        ]
        return (dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __repr__(self) -> str:
        names = list(self._columns)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"<{self.name}: {len(self):,} rows of {', '.join(names[:_NAMED])}{more}>"

    def __str__(self) -> str:
        """The first rows, and as many columns as have room beside each other."""
        cells = [[name, *map(_cell, column[:_SHOWN].tolist())] for name, column in self._columns.items()]
        widths = [max(map(len, column)) for column in cells]
        ends = [sum(widths[: i + 1]) + 2 * i for i in range(len(widths))]
        fit = sum(end <= _WIDTH for end in ends)
        padded = [[cell.rjust(width) for cell in column] for column, width in zip(cells[:fit], widths, strict=False)]
        lines = ["  ".join(row) for row in zip(*padded, strict=True)]
        if len(self) > _SHOWN:
            lines.append(f"{len(self) - _SHOWN:,} rows more")
        if fit < len(cells):
            lines.append(f"further columns: {', '.join(list(self._columns)[fit:])}")
        return "\n".join(map(plain, lines))

    def _repr_html_(self) -> str:
        """The first rows, for a notebook."""
        head = "".join(f"<th>{escaped(name)}</th>" for name in self._columns)
        rows = [
            "".join(f"<td>{escaped(_cell(value))}</td>" for value in row)
            for row in zip(*(column[:_SHOWN].tolist() for column in self._columns.values()), strict=True)
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = f", the first {_SHOWN}" if len(self) > _SHOWN else ""
        return (
            f"<table><caption>{escaped(self.name)}: {len(self):,} rows{more}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    # ---- into other libraries

    def to_numpy(self) -> dict[str, Column]:
        """The columns by name."""
        return dict(self._columns)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``; what is missing is null. MissingExtraError without pyarrow (extra ``analysis``)."""
        pa = arrow()
        types = {name: pa.string() for name in self._texts}
        return pa.table(
            {name: pa.array(column, types.get(name), from_pandas=True) for name, column in self._columns.items()}
        )

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``. TokenyardError if pandas is not installed."""
        return _library("pandas").DataFrame({name: column.copy() for name, column in self._columns.items()})

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``; what is missing is null. TokenyardError if polars is not installed."""
        columns = {
            name: column.tolist() if column.dtype == object else column.copy() for name, column in self._columns.items()
        }
        pl = _library("polars")
        return pl.DataFrame(columns, nan_to_null=True, schema_overrides=dict.fromkeys(self._texts, pl.String))

    @property
    def _texts(self) -> list[str]:
        """Columns of texts: they are that even if all texts are missing."""
        return [
            name
            for name, column in self._columns.items()
            if column.dtype == object and not any(isinstance(value, bool) for value in column)
        ]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface. MissingExtraError without pyarrow (extra ``analysis``)."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise TokenyardError(f"{name} is not installed: run  pip install {name}") from None


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def table_from(name: str, rows: Sequence[Mapping[str, Any]], *, numbers: Collection[str] = ()) -> RowTable:
    """The table of rows that have the same names, in the order of the first one.

    ``numbers``: columns that are numbers even if all of them are missing.
    """
    columns = {each: column_of([row[each] for row in rows]) for each in (rows[0] if rows else ())}
    return RowTable(
        name, {each: column.astype(np.float64) if each in numbers else column for each, column in columns.items()}
    )


def column_of(values: Sequence[Any]) -> Column:
    """Values of any kind, None where there is none, as the plainest column that holds them all.

    Whole numbers, numbers (a missing one is NaN), booleans or texts; what else there is, and mixtures, become JSON.
    """
    kinds = {type(value) for value in values}
    given = kinds - {type(None)}
    if kinds == {bool}:
        return np.array(values, np.bool_)
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return np.array(values, np.int64)
    if given and given <= {int, float}:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    column = np.empty(len(values), object)
    if given == {bool}:
        column[:] = values
    elif all(issubclass(kind, str) for kind in given):
        column[:] = [None if value is None else str(value) for value in values]
    else:
        column[:] = [None if value is None else msgspec.json.encode(value).decode() for value in values]
    return column


# ---------------------------------------------------------------------------------------------------------------------
# Tables as a little HTML, for a notebook.


class HtmlTable(msgspec.Struct, frozen=True):
    """One table; its cells are text."""

    caption: str
    head: Sequence[str]
    """Names of its columns; empty: it has none."""
    rows: Sequence[Sequence[str]]
    if_empty: str = ""
    """What stands in its place where it has no rows; empty: the table without rows."""

    def html(self) -> str:
        """The element."""
        if self.if_empty and not self.rows:
            return f"<p>{escaped(self.if_empty)}</p>"
        columns = f"<thead><tr>{_cells('th', self.head)}</tr></thead>" if self.head else ""
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in self.rows)
        return f"<table><caption>{escaped(self.caption)}</caption>{columns}<tbody>{body}</tbody></table>"


def tables_html(title: str, tables: Iterable[HtmlTable]) -> str:
    """A title and tables. No text is read as markup."""
    return f"<div><p><b>{escaped(title)}</b></p>{''.join(each.html() for each in tables)}</div>"


def escaped(text: str) -> str:
    """The text, none of which is read as markup."""
    from html import escape  # noqa: PLC0415 - with it comes a table of two thousand characters

    return escape(text)


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escaped(text)}</{tag}>" for text in texts)
