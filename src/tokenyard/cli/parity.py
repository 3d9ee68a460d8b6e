"""``tokenyard parity``: golden vectors in, "all equal" or the first differences out."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from tokenyard.cli.support.console import errors, print_json, results
from tokenyard.cli.support.flags.known import ParityCommand
from tokenyard.parity.comparison import VectorComparison, compare_vectors
from tokenyard.parity.replay import Difference, VectorResult
from tokenyard.redaction import hidden_users


def execute(flags: ParityCommand) -> int:
    """Compare every file: 0 if all are equal, 1 if one differs, 2 if one is damaged, missing or unsupported."""
    console = errors()
    with_bar = partial(track, description="comparing", console=console, transient=True, disable=not console.is_terminal)
    comparison = compare_vectors(flags.files, with_bar)
    if flags.json:
        print_json(comparison.to_dict())
    else:
        _print(comparison, results())
    return comparison.exit_code


def _print(comparison: VectorComparison, console: Console) -> None:
    for message in comparison.damaged:
        errors().print(f"tokenyard: {escape(hidden_users(message))}", soft_wrap=True)
    for path in comparison.missing:
        message = hidden_users(f"{path}: no such file: name a golden vector that is there")
        errors().print(f"tokenyard: {escape(message)}", soft_wrap=True)
    for result in comparison.different:
        assert result.difference is not None
        _print_difference(result, result.difference, console)
    features = Counter(feature for result in comparison.unsupported for feature in result.unsupported)
    for feature, count in sorted(features.items()):
        console.print(f"[yellow]unsupported[/]  {_files(count)} not compared: {feature}")
    console.print(f"{_files(len(comparison.compared))}, {comparison.steps:,} steps, {_verdict(comparison)}")


def _verdict(comparison: VectorComparison) -> str:
    counts = {
        "different": len(comparison.different),
        "damaged": len(comparison.damaged),
        "missing": len(comparison.missing),
        "unsupported": len(comparison.unsupported),
    }
    found = [f"[red]{_files(count)} {word}[/]" for word, count in counts.items() if count]
    return ", ".join(found) or "[green]all equal[/]"


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _print_difference(result: VectorResult, difference: Difference, console: Console) -> None:
    where, ours, theirs = _narrow(difference.what, difference.ours, difference.theirs)
    console.print(
        f"[red]different[/]  {escape(str(result.path))}: tick {difference.tick}, {escape(where)}", soft_wrap=True
    )
    console.print(f"  ours  {escape(_as_json(ours))}", soft_wrap=True)
    console.print(f"  vLLM  {escape(_as_json(theirs))}", soft_wrap=True)


def _narrow(what: str, ours: Any, theirs: Any) -> tuple[str, Any, Any]:
    """The first element that differs, where both sides are lists that share a beginning or have equal lengths."""
    while isinstance(ours, list) and isinstance(theirs, list):
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if at is None:
            return f"{what} has {len(ours)} elements, vLLM's {len(theirs)}", ours, theirs
        what, ours, theirs = f"{what}[{at}]", ours[at], theirs[at]
    return what, ours, theirs


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
