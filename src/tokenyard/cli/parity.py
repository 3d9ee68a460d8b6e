"""``tokenyard parity``: golden vectors in, "all equal" or the first differences out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from tokenyard.cli.support.console import errors, print_json, results
from tokenyard.cli.support.flags import Parity
from tokenyard.errors import ParityError
from tokenyard.parity.replay import Difference, VectorResult, replay_vector
from tokenyard.redaction import hidden_users

__all__ = ["execute"]

_PATTERNS = ("*.jsonl", "*.jsonl.gz")


class _Comparison(NamedTuple):
    """What came of all files."""

    results: list[VectorResult]
    damaged: list[str]
    """Messages about files that cannot be replayed."""
    missing: list[Path]
    """Files that were named and are not there."""

    @property
    def compared(self) -> list[VectorResult]:
        return [each for each in self.results if not each.unsupported]

    @property
    def different(self) -> list[VectorResult]:
        return [each for each in self.results if each.difference is not None]

    @property
    def unsupported(self) -> list[VectorResult]:
        return [each for each in self.results if each.unsupported]

    @property
    def steps(self) -> int:
        return sum(each.steps for each in self.compared)

    @property
    def exit_code(self) -> int:
        if self.different:
            return 1
        return 2 if self.damaged or self.missing or self.unsupported else 0


def execute(flags: Parity) -> int:
    """Compare every file: 0 if all are equal, 1 if one differs, 2 if one is damaged, missing or unsupported."""
    comparison = _compare(_expand(flags.files))
    if flags.json:
        print_json(_as_json(comparison))
    else:
        _print(comparison, results())
    return comparison.exit_code


def _expand(paths: tuple[Path, ...]) -> list[Path]:
    """The files named, and those in the directories named."""
    if not paths:
        raise ParityError("name at least one golden vector (*.jsonl or *.jsonl.gz) or a directory with some")
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(file for pattern in _PATTERNS for file in path.glob(pattern))
        if not found:
            raise ParityError(f"{path}: no *.jsonl or *.jsonl.gz in this directory")
        files += found
    return files


def _compare(paths: list[Path]) -> _Comparison:
    comparison = _Comparison([], [], [])
    console = errors()
    for path in track(paths, "comparing", console=console, transient=True, disable=not console.is_terminal):
        if not path.exists():
            comparison.missing.append(path)
            continue
        try:
            comparison.results.append(replay_vector(path))
        except ParityError as error:
            comparison.damaged.append(str(error))
    return comparison


def _print(comparison: _Comparison, console: Console) -> None:
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


def _verdict(comparison: _Comparison) -> str:
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
    console.print(f"  ours  {escape(_shown(ours))}", soft_wrap=True)
    console.print(f"  vLLM  {escape(_shown(theirs))}", soft_wrap=True)


def _narrow(what: str, ours: Any, theirs: Any) -> tuple[str, Any, Any]:
    """The first element that differs, where both sides are lists that share a beginning or have equal lengths."""
    while isinstance(ours, list) and isinstance(theirs, list):
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if at is None:
            return f"{what} has {len(ours)} elements, vLLM's {len(theirs)}", ours, theirs
        what, ours, theirs = f"{what}[{at}]", ours[at], theirs[at]
    return what, ours, theirs


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _as_json(comparison: _Comparison) -> dict[str, Any]:
    return {
        "files": len(comparison.compared),
        "steps": comparison.steps,
        "all_equal": comparison.exit_code == 0,
        "damaged": comparison.damaged,
        "missing": [str(path) for path in comparison.missing],
        "results": [
            {
                "file": str(each.path),
                "name": each.name,
                "steps": each.steps,
                "equal": not each.unsupported and each.difference is None,
                "unsupported": each.unsupported,
                "difference": each.difference._asdict() if each.difference else None,
            }
            for each in comparison.results
        ],
    }
