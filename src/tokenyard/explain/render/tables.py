"""What the printed answers are laid out with: sections with a title, and tables without lines."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

__all__ = ["print_section", "table_of"]


def print_section(console: Console, title: str, *parts: Table | Text | None) -> None:
    """A blank line, the title, and its parts indented; an empty text is a blank line."""
    console.print()
    console.print(Text(title, "bold"))
    for part in parts:
        if part is not None:
            console.print(Padding(part, (0, 0, 0, 2), expand=False) if part else part)


def table_of(*columns: Column, header: bool = True) -> Table:
    """A table without lines."""
    return Table(*columns, box=None, pad_edge=False, padding=(0, 1), show_header=header, header_style="bright_black")
