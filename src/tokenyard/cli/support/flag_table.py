"""The flags of each command as a table, read from the fields of its class, and what the library calls settings.

The parser, the help, completion in a shell and messages all ask this table. Messages do because the library names
settings as its configurations do. A field says of its flag what type, default and the text below it do not by a mark:
``Positional``, ``Repeated``, :class:`Arg`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tokenyard.deploy.setting_values import kinds_in
from tokenyard.deploy.settings import NO_SETTING, OFF_UNLESS_NAMED, Help, Marker, SameAs
from tokenyard.deploy.vllm_serve.flags import OTHER_NAMES
from tokenyard.errors import worded
from tokenyard.quick_dataclass import dataclass

_T = TypeVar("_T")

POSITIONAL = Marker("POSITIONAL")
REPEATED = Marker("REPEATED")

Positional = Annotated[_T, POSITIONAL]
"""It stands without a flag."""
Repeated = Annotated[tuple[tuple[str, ...], ...], REPEATED]
"""A flag that may be given several times, each time with one value or more."""


class Command:
    """Base of the sub-commands."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg(Help):
    """What a help says of a flag, and how else the flag is called."""

    name: str | None = None
    """Its name, where that is not the field's."""
    aliases: tuple[str, ...] = ()
    """Further spellings, with their dashes."""


SLO_FLAG = Arg(metavar="NAME=TIME ...", otherwise="none")
"""Bounds on latencies, wherever a report is made."""


def optional(metavar: str, otherwise: str) -> Arg:
    """Describe a flag whose default is worked out later: the help says how."""
    return Arg(metavar=metavar, otherwise=otherwise)


HELP = ("-h", "--help")
"""What every command takes besides its flags: the first for a screen, the second for all."""
VERSION = ("-V", "-v", "--version")
"""What may stand in the place of a command."""


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a command, or of one of its groups of settings."""

    group: str | None
    """The field of the command that holds its group; None: its own."""
    declared_in: type
    """The class that has the field."""
    name: str
    """The setting that it becomes."""
    kind: Any
    """Its type."""
    marks: tuple[Any, ...]
    """What stands beside the type."""
    default: Any
    """``dataclasses.MISSING`` if it must be given."""

    @property
    def is_positional(self) -> bool:
        """Whether it stands without a flag."""
        return POSITIONAL in self.marks

    @property
    def is_repeated(self) -> bool:
        """Whether it may be given several times, each time with one value or more."""
        return REPEATED in self.marks

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return bool in kinds_in(self.kind)

    @property
    def element(self) -> Any:
        """The type of one value, of a flag that takes several; None for any other."""
        kind = get_args(self.kind)[0] if self.is_repeated else self.kind
        args = get_args(kind)
        return args[0] if get_origin(kind) is tuple and args[1:] == (Ellipsis,) else None

    @property
    def spellings(self) -> list[str]:
        """Its names, with dashes."""
        args = [each for each in self.marks if isinstance(each, Arg)]
        names = [each.name for each in args if each.name]
        return [flag(names[-1] if names else self.name), *(name for each in args for name in each.aliases)]

    @property
    def off_spellings(self) -> list[str]:
        """The names that turn a switch off; none for one that is off unless it is named."""
        if not self.is_switch or OFF_UNLESS_NAMED in self.marks:
            return []
        return ["--no-" + name.removeprefix("--") for name in self.spellings]

    @property
    def choices(self) -> list[str]:
        """The values that it may have; none if these are not listed."""
        found: list[str] = []
        for kind in kinds_in(self.kind):
            if get_origin(kind) is Literal:
                found += map(str, get_args(kind))
            elif isinstance(kind, type) and issubclass(kind, Enum):
                found += [str(each.value) for each in kind]
        return found

    @property
    def metavar(self) -> str:
        """The word for its value in a help: ``TOKENS``."""
        given = next((each.metavar for each in self.marks if isinstance(each, Help) and each.metavar), None)
        if given is not None:
            return given
        kind = self.element or next(iter(kinds_in(self.kind)))
        word = f"{{{','.join(self.choices)}}}" if self.choices else str(kind.__name__).upper()
        return word if self.element is None else f"[{word} ...]"

    @property
    def default_in_words(self) -> str:
        """What counts if it is not given, as a help says it."""
        given = next((each.otherwise for each in self.marks if isinstance(each, Help) and each.otherwise), None)
        if self.default is MISSING:
            return "required"
        value = self.default.value if isinstance(self.default, Enum) else self.default
        return f"default: {given or ('none' if value == () else value)}"

    @property
    def text(self) -> str:
        """What it does: the text below its field, or below that of the configuration that it is like."""
        same = next((each.config for each in self.marks if isinstance(each, SameAs)), self.declared_in)
        return field_docs(same)[self.name]


def flags_of(command: type) -> tuple[Flag, ...]:
    """Return all arguments of a command, those without a flag (WORKLOAD, TRACE) included."""
    return _table_of(command)


@cache
def _table_of(command: type[Any]) -> tuple[Flag, ...]:
    return tuple(_flags_of(command, None))


def _flags_of(declared_in: type, group: str | None) -> Iterator[Flag]:
    hints = get_type_hints(declared_in, include_extras=True)
    for each in fields(declared_in):
        hint = hints[each.name]
        is_marked = get_origin(hint) is Annotated
        kind, marks = (get_args(hint)[0], get_args(hint)[1:]) if is_marked else (hint, ())
        if NO_SETTING in marks:
            continue
        if is_dataclass(kind):
            yield from _flags_of(kind, each.name)  # type: ignore[arg-type]  # a class: instances are no hints
        else:
            yield Flag(
                group=group, declared_in=declared_in, name=each.name, kind=kind, marks=marks, default=each.default
            )


def setting_names(command: type) -> set[str]:
    """Return the settings that a command has a flag for; what stands without a flag (WORKLOAD, TRACE) is none."""
    return {each.name for each in flags_of(command) if not each.is_positional}


def spellings(command: type) -> dict[str, str]:
    """Map every way in which a flag of a command is written, with its dashes, to the setting that it is."""
    return {word: each.name for each in flags_of(command) if not each.is_positional for word in each.spellings}


# ---------------------------------------------------------------------------------------------------------------------
# What the library says, in the words of the command line.


def in_words_of(command: type | None, marked: str) -> str:
    """Word a sentence whose settings are marked for a user who has typed ``command``; None: it is not known which."""
    return worded(marked) if command is None else worded(marked, partial(_name_in_command, command))


def _name_in_command(command: type, name: str) -> str:
    """Return what a command calls a setting: its flag, or the flag whose JSON holds it; else its name."""
    name = spellings(command).get(flag(name), name)
    called = (name, "policies" if name == "policy" else "", OTHER_NAMES.get(name, ""))
    flags = {each.name: each for each in flags_of(command) if not each.is_positional}
    known = next((flags[each] for each in called if each in flags), None)
    if known is not None:
        return known.spellings[0]
    if "kv_transfer_config" in flags and name in _settings_in_json():
        return f"{flag('kv_transfer_config')}: {name}"
    return name


def _settings_in_json() -> set[str]:
    """Return what `--kv-transfer-config` takes."""
    from tokenyard.connectors.config import SETTINGS, KVTransferConfig  # noqa: PLC0415 - only when something is wrong

    return {each.name for each in fields(KVTransferConfig)} | {name for names in SETTINGS.values() for name in names}


# ---------------------------------------------------------------------------------------------------------------------
# What the source says about the fields of a class: the text that stands below each.


def field_docs(kind: type) -> dict[str, str]:
    """Docstrings of the attributes that the class body declares, by name, each on one line; inherited ones included.

    Empty for classes without a source of their own, such as built-in ones.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if declared := _classes_of(each.__module__).get(each.__qualname__):
            found |= _declared(declared)
    return found


@cache
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by their qualified names, read from its source once."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_classes_in(ast.parse(source).body))


def _classes_in(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield within + node.name, node
            yield from _classes_in(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield from _classes_in(node.body, f"{within}{node.name}.<locals>.")


def _declared(declared: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, text in _documented(declared.body):
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        if isinstance(target, ast.Name):
            found[target.id] = text
    return found


def _documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign | ast.Assign, str]]:
    """Assignments with a text below them, which is put on one line."""
    for statement, text in pairwise(body):
        if not isinstance(statement, ast.AnnAssign | ast.Assign) or not isinstance(text, ast.Expr):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            yield statement, " ".join(text.value.value.split())
