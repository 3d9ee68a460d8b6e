"""What another version changes, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.questions.upgrade import Moved, Upgrade
from tokenyard.redaction import plain
from tokenyard.units import CLIENT_FIGURES, changes_for_clients, count_of, duration, percent

_MOST_SHOWN = 6
"""Requests of a step that are listed."""
_MOST_NAMED = 3
"""Defaults that the verdict names."""
_FELT = 0.01
"""Share from which on a change is worth a word there."""


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
    """What clients notice, what has to be done before, and what is another then."""
    both = {each.name: (each.older, each.newer) for each in told.latencies}
    changes = {name: b / a - 1 for name, (a, b) in both.items() if a and b is not None}
    said = changes_for_clients(changes)
    felt = [share for name, share in changes.items() if name in CLIENT_FIGURES and abs(share) >= _FELT]
    instead = f"vLLM {told.newer} instead of {told.older}, for this traffic:"
    sentences = [f"{instead} {said}." if felt else f"{instead} nothing that clients notice ({said})."]
    if not said:
        sentences = [f"{instead} nothing is known, as no request ended with both."]
    if told.missing_flags:
        flags = ", ".join(map(plain, told.missing_flags))
        sentences.append(f"vLLM {told.newer} does not start with {flags}: take that out first.")
    sentences.append(_memory(told))
    names = [plain(each.name) for each in told.defaults]
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED)
        are = "Another default" if len(names) == 1 else "Other defaults"
        sentences.append(f"{are}: {', '.join(names[:_MOST_NAMED])}{more}.")
    first = told.first_difference
    sentences.append(
        "With the same settings, scheduling is the same in every step."
        if first is None
        else f"With the same settings, scheduling differs from {duration(first.at_s)} on."
    )
    return " ".join(each for each in sentences if each)


def _memory(told: Upgrade) -> str:
    """Whether the KV cache holds less, or more."""
    room = next((each for each in told.memory if each.name == "max_concurrency"), None)
    if room is None or not room.older or abs(share := room.newer / room.older - 1) < _FELT:
        return ""
    return (
        f"The KV cache has room for {percent(abs(share))} {'fewer' if share < 0 else 'more'} requests of full length."
    )


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
        table.add_row(plain(row.name), _cell(row.older), _cell(row.newer))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else plain(str(value))
