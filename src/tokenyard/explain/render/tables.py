"""What the printed answers are laid out with: sections with a title, and tables without lines."""

from __future__ import annotations

from typing import Protocol, TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

__all__ = ["fitting", "print_section", "table_of"]

_Rows_contra = TypeVar("_Rows_contra", contravariant=True)
_INDENT = 2
_UNBOUNDED = 1000
"""Columns that no table needs."""


def print_section(console: Console, title: str, *parts: Table | Text | None) -> None:
    """A blank line, the title, and its parts indented; an empty text is a blank line."""
    console.print()
    console.print(Text(title, "bold"))
    for part in parts:
        if part is not None:
            console.print(Padding(part, (0, 0, 0, _INDENT), expand=False) if part else part)


def table_of(*columns: Column, header: bool = True) -> Table:
    """A table without lines."""
    return Table(*columns, box=None, pad_edge=False, padding=(0, 1), show_header=header, header_style="bright_black")


class _Layout(Protocol[_Rows_contra]):
    def __call__(self, rows: _Rows_contra, /, *, narrow: bool) -> Table: ...


def fitting(console: Console, layout: _Layout[_Rows_contra], rows: _Rows_contra) -> Table:
    """The table in its wide layout where a section of the console has room for it, else in its narrow one."""
    wide = layout(rows, narrow=False)
    needed = console.measure(wide, options=console.options.update(max_width=_UNBOUNDED)).maximum
    return wide if needed + _INDENT <= console.width else layout(rows, narrow=True)
