"""What another version changes, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.explain.render.units import count_of
from tokenyard.questions.upgrade import Moved, Upgrade
from tokenyard.redaction import plain

_MOST_SHOWN = 6
"""Requests of a step that are listed."""


def print_upgrade(told: Upgrade, console: Console) -> None:
    """The verdict, decisions, then what is taken for granted, then what it costs."""
    console.print(Text(_verdict(told), "bold"))
    console.print()
    requests = count_of(told.requests, "request")
    title = f"vLLM {told.older} -> {told.newer}"
    console.print(Text.assemble((title, "bold"), f"  {plain(told.workload)}: {requests}"))
    print_section(console, "decisions", _decisions(told))
    _print_moved(console, told, "defaults that move", told.defaults)
    if told.missing_flags:
        print_section(console, "flags that vanish", Text("\n".join(map(plain, told.missing_flags))))
    _print_moved(console, told, "memory", told.memory)
    _print_moved(console, told, "latencies", [each for each in told.latencies if each.older != each.newer])
    same = "Step times are those of one model for both versions: how much faster their kernels are was not measured."
    console.print(Text(same, "dim"))
    if told.outside:
        said = [f"{name}: {what}" for name, what in told.outside.items()]
        print_section(console, "not modelled as these versions have it", Text("\n".join(said)))


def _verdict(told: Upgrade) -> str:
    first = told.first_difference
    until = "in every step" if first is None else f"until step {first.step:,}"
    moved = f"{count_of(len(told.defaults), 'default')} differ{'s' * (len(told.defaults) == 1)}"
    return f"vLLM {told.newer} decides as {told.older} {until}; {moved}."


def _decisions(told: Upgrade) -> Text:
    first = told.first_difference
    same = count_of(told.equal_steps, "step")
    known = count_of(len(told.switches), "difference")
    if first is None:
        return Text(f"the same in all {same}, with the same settings; {known} between the versions, none met here")
    cause = f"{first.switch} (since {first.since})" if first.switch is not None else "no single switch"
    meaning = next((each.meaning for each in told.switches if each.name == first.switch), "")
    return Text(
        f"the same in {same}; step {first.step:,}, at {first.at_s:,.3f} s, differs because of {cause}\n"
        f"{meaning}\n"
        f"{told.older}: {_tokens(first.older)}\n{told.newer}: {_tokens(first.newer)}\n"
        f"{known} between the versions; --json lists them"
    )


def _tokens(tokens: dict[str, int] | None) -> str:
    if tokens is None:
        return "no such step"
    shown = [f"{plain(request)} {count}" for request, count in list(tokens.items())[:_MOST_SHOWN]]
    more = len(tokens) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") + f" ({sum(tokens.values()):,} tokens)"


def _print_moved(console: Console, told: Upgrade, title: str, rows: Sequence[Moved]) -> None:
    if rows:
        print_section(console, title, _table(told, rows))
    else:
        print_section(console, title, Text("none changes"))


def _table(told: Upgrade, rows: Sequence[Moved]) -> Table:
    table = table_of(Column(""), Column(told.older, justify="right"), Column(told.newer, justify="right"))
    for row in rows:
        table.add_row(plain(row.name), _shown(row.older), _shown(row.newer))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else plain(str(value))
