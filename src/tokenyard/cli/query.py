"""``tokenyard query``: SQL over a trace."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from rich.markup import escape
from rich.table import Table

from tokenyard.cli.support.console import errors, print_json, results, warn
from tokenyard.cli.support.flags.traces import QueryCommand
from tokenyard.trace.query import INTERRUPTIBLE, QueryAnswer, query_trace
from tokenyard.trace.reader import find_trace
from tokenyard.trace.schema import json_value

_WIDEST = 10_000
_FEW = 6
"""Columns whose cells may be wrapped; of more, nothing readable would be left."""


def execute(flags: QueryCommand) -> int:
    """Ask, and print the rows; always 0 if there is an answer."""
    limits = msgspec.structs.replace(INTERRUPTIBLE, rows=flags.limit)
    files = find_trace(flags.trace)
    with errors().status(f"reading {escape(str(files.source))}"):
        answer, damage, is_converted = query_trace(files, flags.sql, limits)
    for sentence in damage:
        warn(sentence)
    if flags.json:
        print_json(answer.to_dict())
    else:
        console = results()
        table = _table(answer)
        fits = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum <= console.width
        console.print(table if fits or len(answer.columns) <= _FEW else _records(answer))
    if answer.truncated:
        warn(f"there are more than {flags.limit:,} rows; --limit shows more")
    if is_converted:
        errors().print("[dim]`tokenyard convert` once, and questions are answered at once.[/]")
    return 0


def _table(answer: QueryAnswer) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in answer.columns:
        table.add_column(escape(column.name), justify="left" if column.type in ("VARCHAR", "BOOLEAN") else "right")
    for row in answer.rows:
        table.add_row(*(escape(_cell(value)) for value in row))
    return table


def _records(answer: QueryAnswer) -> Table:
    """For rows that are wider than the terminal: each one below the other, a line per value that there is."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for number, row in enumerate(answer.rows, 1):
        table.add_row(f"row {number:,}", "")
        for column, value in zip(answer.columns, row, strict=True):
            if value is not None:
                table.add_row("  " + escape(column.name), escape(_cell(value)))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict):
        return json.dumps(value, default=json_value, ensure_ascii=False)
    return str(value)
