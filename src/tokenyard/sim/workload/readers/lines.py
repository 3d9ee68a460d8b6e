"""Lines of a workload file, plain or gzipped, with every failure turned into a WorkloadError that names the line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from tokenyard.config import MAX_COUNT, require_int
from tokenyard.errors import ConfigError, FileError, WorkloadError, shown
from tokenyard.files.bounds import Bounds
from tokenyard.files.lines import DamagedFileError, bounded_lines, is_gzipped
from tokenyard.files.nesting import is_nested_deeper
from tokenyard.sim.workload.readers.messages import describe_bad_json, describe_misfit

__all__ = [
    "MAX_SECONDS",
    "Count",
    "CsvRows",
    "Length",
    "ReadOptions",
    "Seconds",
    "decode",
    "numbered_lines",
    "text_lines",
]

_DIGITS = re.compile(r"[0-9]{1,18}")

T = TypeVar("T")

Length = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
"""A number of tokens, at least one."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
MAX_SECONDS = 1e9
"""Three decades; beyond it a double no longer resolves a step."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a workload file."""

    limit: int | None = None
    """Read only so many: sessions where the format has them, else requests."""
    seed: int = 0
    """Of everything the file does not say: arrivals of sessions, unique tokens."""
    session_rate: float | None = None
    """Sessions per second (a Poisson process), where nothing says when sessions start; None leaves the default."""
    seconds_per_unit: float = 1.0
    """Seconds that 1 stands for in times of the format ``plain``; other formats say their unit themselves."""

    def __post_init__(self) -> None:
        if self.limit is not None:
            require_int("limit", self.limit, 1)
        require_int("seed", self.seed, 0)
        rate = 1.0 if self.session_rate is None else self.session_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise ConfigError("session_rate", rate, "give a number of sessions per second above 0")


def text_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """``(line number, line)`` of every line that is not blank; the file is closed when the iteration ends."""
    number = 0
    try:
        if path.is_dir():
            problem = "is a directory: name a workload's file; of traces, `report A` tells, and `compare A B` compares"
            raise FileError(path, problem)
        for number, line in enumerate(bounded_lines(path, "gz" if is_gzipped(path) else "plain"), 1):
            text = line.removeprefix(BOM_UTF8).rstrip(b"\r\n")  # also within: files that were joined
            if text.strip():
                yield number, text
    except FileError as error:
        raise WorkloadError(path, number + isinstance(error, DamagedFileError), error.problem) from None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The same for a file whose every line is JSON, or numbers: a line that is nested too deeply is an error."""
    bounds = Bounds.from_env()
    for number, text in text_lines(path):
        if is_nested_deeper(text, bounds.nesting):
            raise WorkloadError(path, number, bounds.exceeded(path, "is nested deeper", "nesting").problem)
        yield number, text


def decode(decoder: msgspec.json.Decoder[T], path: Path, number: int, line: bytes) -> T:
    """One JSON line as a checked record."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        raise WorkloadError(path, number, describe_misfit(error, decoder.type, line)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WorkloadError(path, number, describe_bad_json(error)) from None


class CsvRows:
    """Rows of a CSV file with a header, read by column name; every error names file, line and column."""

    def __init__(self, path: Path, *columns: str) -> None:
        """Raises WorkloadError if the header lacks one of ``columns``."""
        self._path = path
        self._lines = numbered_lines(path)
        number, header = next(self._lines, (0, b""))
        names = self._cells(number, header)
        missing = [name for name in columns if name not in names]
        if missing:
            raise WorkloadError(path, number, f"the header has no column {missing[0]!r}")
        self._index = {name: names.index(name) for name in names}
        self._width = len(names)
        self.line = number

    def has(self, column: str) -> bool:
        return column in self._index

    def __iter__(self) -> Iterator[list[str]]:
        for number, raw in self._lines:
            self.line = number
            cells = self._cells(number, raw)
            if len(cells) != self._width:
                raise self.error(f"has {len(cells)} columns, the header has {self._width}")
            yield cells

    def error(self, problem: str) -> WorkloadError:
        """An error at the current line."""
        return WorkloadError(self._path, self.line, problem)

    def text(self, row: list[str], column: str) -> str:
        return row[self._index[column]]

    def count(self, row: list[str], column: str, low: int = 0) -> int:
        text = row[self._index[column]]
        value = int(text) if _DIGITS.fullmatch(text) else -1
        if not low <= value <= MAX_COUNT:
            raise self.error(f"{column} = {shown(text)}: give a whole number from {low} to {MAX_COUNT}")
        return value

    def seconds(self, row: list[str], column: str) -> float:
        text = row[self._index[column]]
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= MAX_SECONDS:
            raise self.error(f"{column} = {shown(text)}: give a number of seconds from 0 to {MAX_SECONDS:g}")
        return value

    def _cells(self, number: int, raw: bytes) -> list[str]:
        try:
            return [cell.strip() for cell in raw.decode().split(",")]
        except UnicodeDecodeError as error:
            raise WorkloadError(self._path, number, describe_bad_json(error)) from None
