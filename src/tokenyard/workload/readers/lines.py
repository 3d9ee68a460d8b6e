"""Lines of a workload file, with every failure named by its line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import inspect

from tokenyard.arguments import is_number
from tokenyard.core.config import MAX_COUNT, require_int
from tokenyard.errors import ConfigError, FileError, WorkloadError, near_names, shown
from tokenyard.files import Bounds, DamagedFileError, bounded_lines, is_gzipped, is_nested_deeper
from tokenyard.patterns import lazy_pattern
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.record import MAX_SECONDS

# ---------------------------------------------------------------------------------------------------------------------
# What is wrong with a line of JSON, worded as all messages here are: the field, its value, and what to give instead.
#
# msgspec says where a record does not fit and what it met there; the type at that place says what would have fitted.

_MESSAGE = lazy_pattern(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP = lazy_pattern(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]")
_MISSING = lazy_pattern(r"Object missing required field `(?P<field>.*)`")
_UNKNOWN = lazy_pattern(r"Object contains unknown field `(?P<field>.*)`")
_MALFORMED = "JSON is malformed: "
_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.StrType: "a text",
    inspect.ListType: "a list",
    inspect.StructType: "a JSON object",
    inspect.DictType: "a JSON object",
}

_NOWHERE = object()


class _Place(msgspec.Struct, frozen=True):
    """A place in a record."""

    name: str
    """The field's name as users know it, ``requests[0].in``; empty for the whole record."""
    type: inspect.Type | None
    """What belongs there, if that is known."""
    value: object
    """What stands there, or ``_NOWHERE``."""

    def child(self, step: str | int) -> _Place:
        """The place of a field or an element."""
        name = f"{self.name}[{step}]" if isinstance(step, int) else f"{self.name}.{step}".lstrip(".")
        return _Place(name, _child_type(self.type, step), _child_value(self.value, step))

    @property
    def described(self) -> str:
        """Name and value."""
        name = self.name or "the line"
        return name if self.value is _NOWHERE else f"{name} = {shown(self.value)}"


def describe_bad_json(error: Exception) -> str:
    """Why a line cannot be read at all."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text: {error.reason}"
    if isinstance(error, RecursionError):
        return "is not JSON that can be read: it is nested too deeply"
    return f"is not JSON: {str(error).removeprefix(_MALFORMED)}"


def describe_misfit(error: msgspec.ValidationError, record: type[Any], line: bytes) -> str:
    """Why a line that is JSON is no ``record``."""
    found = _MESSAGE.fullmatch(str(error))
    assert found is not None, "every part of the pattern may be empty"
    what, path = found["what"], found["path"] or ""
    place = _Place("", inspect.type_info(record), _decoded(line))
    for step in _STEP.finditer(path):
        place = place.child(step["field"] or int(step["index"]))
    if missing := _MISSING.fullmatch(what):
        absent = place.child(missing["field"])
        return f"{absent.name} is missing: give {_expected(absent.type)}"
    if unknown := _UNKNOWN.fullmatch(what):
        field = unknown["field"]
        return f"{place.child(field).described}: there is no such field; {_advice(field, place.type)}"
    return f"{place.described}: give {_expected(place.type)}"


def _decoded(line: bytes) -> object:
    """The line as plain values; ``_NOWHERE`` if something in it, which a record may ignore, is none."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOWHERE


def _advice(field: str, record: inspect.Type | None) -> str:
    kinds = record.types if isinstance(record, inspect.UnionType) else (record,)
    known = [field.encode_name for kind in kinds if isinstance(kind, inspect.StructType) for field in kind.fields]
    close = near_names(field, known, 1)
    return f"did you mean {close[0]}?" if close else f"use some of: {', '.join(known)}"


def _child_value(value: object, step: str | int) -> object:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _NOWHERE
    return value.get(step, _NOWHERE) if isinstance(value, dict) else _NOWHERE


def _child_type(type_: inspect.Type | None, step: str | int) -> inspect.Type | None:
    for each in type_.types if isinstance(type_, inspect.UnionType) else (type_,):
        if isinstance(each, inspect.StructType):
            return next((field.type for field in each.fields if field.encode_name == step), None)
        if isinstance(each, inspect.ListType):
            return each.item_type
        if isinstance(each, inspect.TupleType) and isinstance(step, int):
            return each.item_types[step]
    return None


def _expected(type_: inspect.Type | None) -> str:
    """What to give where ``type_`` belongs."""
    if isinstance(type_, inspect.UnionType):
        return " or ".join(_expected(each) for each in type_.types if not isinstance(each, inspect.NoneType))
    if isinstance(type_, inspect.IntType):
        return f"a whole number{_bounds(type_)}"
    if isinstance(type_, inspect.FloatType):
        return f"a number{_bounds(type_)}"
    if isinstance(type_, inspect.LiteralType):
        return " or ".join(map(str, type_.values))
    if isinstance(type_, inspect.TupleType):
        return f"a list of {len(type_.item_types)} elements"
    if isinstance(type_, inspect.StrType) and type_.min_length:
        return "a text that is not empty"
    return "another value" if type_ is None else _PLAIN.get(type(type_), "another value")


def _bounds(type_: inspect.IntType | inspect.FloatType) -> str:
    if type_.ge is None:
        return ""
    return f" from {_number(type_.ge)}" + ("" if type_.le is None else f" to {_number(type_.le)}")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


# ---------------------------------------------------------------------------------------------------------------------
# Lines of a workload file, plain or gzipped, with every failure turned into a WorkloadError that names the line.

_DIGITS = lazy_pattern(r"[0-9]{1,18}")

T = TypeVar("T")

Length = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
"""A number of tokens, at least one."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]


@dataclass(slots=True)
class LeftOut:
    """What a reader has left out because of its limit."""

    count: int = 0
    what: str = "requests"
    """What is counted: requests or sessions."""
    at_least: bool = False
    """Whether there are more: counting ended at a line that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a workload file."""

    limit: int | None = None
    """Read only so many: sessions where the format has them, else requests."""
    seed: int = 0
    """Seed of everything the file does not say: arrivals of sessions, unique tokens."""
    session_rate: float | None = None
    """Sessions per second (a Poisson process), where nothing says when sessions start; None leaves the default."""
    seconds_per_unit: float = 1.0
    """Seconds that 1 stands for in times of the format ``plain``; other formats say their unit themselves."""
    left_out: LeftOut = field(default_factory=LeftOut, compare=False)
    """The reader says there what lies beyond ``limit``."""

    def __post_init__(self) -> None:
        if self.limit is not None:
            require_int("limit", self.limit, 1)
        require_int("seed", self.seed, 0)
        rate = 1.0 if self.session_rate is None else self.session_rate
        if not is_number(rate, above=True):
            raise ConfigError("session_rate", rate, "give a number of sessions per second above 0")


def limited(items: Iterable[T], options: ReadOptions, what: str = "requests") -> Iterator[T]:
    """The first ``limit`` of a file's ``items``; those beyond are counted, ``what`` they are, and not read."""
    rest = iter(items)
    yield from islice(rest, options.limit)
    left = options.left_out
    left.what = what
    try:
        left.count += sum(1 for _ in rest)
    except WorkloadError:
        left.count, left.at_least = left.count + 1, True


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


def numbered_lines(
    path: Path, options: ReadOptions | None = None, what: str = "requests"
) -> Iterator[tuple[int, bytes]]:
    """The lines of a file as :func:`text_lines` gives them; a line of JSON that is nested too deeply is an error.

    With ``options`` as :func:`limited` has it.
    """
    bounds, lines = Bounds.from_env(), text_lines(path)
    for number, text in lines if options is None else limited(lines, options, what):
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
        self._lines = text_lines(path)
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

    def read(self, options: ReadOptions) -> Iterator[list[str]]:
        """The rows, as :func:`limited` has it."""
        for number, raw in limited(self._lines, options):
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
