"""Flags and settings: what the library says in the words of the command line, and how values are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from tokenyard.cli.support.flags.marks import POSITIONAL, Arg
from tokenyard.deploy.settings import NO_SETTING
from tokenyard.deploy.vllm_serve.flags import OTHER_NAMES
from tokenyard.errors import shown, worded
from tokenyard.quick_named_tuple import NamedTuple

# ---------------------------------------------------------------------------------------------------------------------
# Numbers on the command line: what is no number is refused in words for users, not for programmers.

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
"""More digits than any count or seed has."""


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a whole number of at most 18 digits")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a number") from None


NUMBERS: dict[type, tuple[str, Callable[[str], Any]]] = {int: ("INT", _whole), float: ("FLOAT", _number)}
"""What a help calls a number, and how it is read; ValueError for what is none."""


# ---------------------------------------------------------------------------------------------------------------------
# What the library says, in the words of the command line.
#
# The library names settings as its configurations do. Here, and nowhere else, they become the flags that a user
# types.


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


class Flag(NamedTuple):
    """A field of a command, or of one of its groups."""

    group: str | None
    """The field of the command that holds its group; None: its own."""
    name: str
    kind: Any
    """Its type."""
    said: tuple[Any, ...]
    """What stands beside the type."""
    default: object

    @property
    def spellings(self) -> list[str]:
        """Its names, with dashes."""
        args = [each for each in self.said if isinstance(each, Arg)]
        names = [each.name for each in args if each.name]
        return [flag(names[-1] if names else self.name), *(name for each in args for name in each.aliases)]


@cache
def flags_of(command: type[Any]) -> tuple[Flag, ...]:
    """All arguments of a command, those without a flag (WORKLOAD, TRACE) included."""
    return tuple(_flags_of(command, None))


def _flags_of(command: type, group: str | None) -> Iterator[Flag]:
    hints = get_type_hints(command, include_extras=True)
    for each in fields(command):
        hint = hints[each.name]
        is_marked = get_origin(hint) is Annotated
        kind, said = (get_args(hint)[0], get_args(hint)[1:]) if is_marked else (hint, ())
        if NO_SETTING in said:
            continue
        if is_dataclass(kind):
            yield from _flags_of(kind, each.name)  # type: ignore[arg-type]  # a class: instances are no hints
        else:
            yield Flag(group, each.name, kind, said, each.default)


@cache
def setting_names(command: type[Any]) -> set[str]:
    """Settings that a command has a flag for; what stands without a flag (WORKLOAD, TRACE) is none."""
    return {each.name for each in flags_of(cast(type, command)) if POSITIONAL not in each.said}


@cache
def spellings(command: type[Any]) -> dict[str, str]:
    """Every way in which a flag of a command is written, with its dashes, and the setting that it is."""
    return {
        word: each.name
        for each in flags_of(cast(type, command))
        if POSITIONAL not in each.said
        for word in each.spellings
    }


def default_of(command: type[Any], setting: str) -> object:
    """What a setting of a command is where it is not given; KeyError if the command has none of that name."""
    for each in flags_of(cast(type, command)):
        if each.name == setting:
            return each.default
    raise KeyError(setting)


def _known_as(setting: str, command: type) -> str | None:
    """The name of a command's flag for the setting; None if it has none."""
    known = setting_names(command)
    names = (setting, "policies" if setting == "policy" else "", OTHER_NAMES.get(setting, ""))
    return next((name for name in names if name in known), None)


def in_words_of(command: type | None, marked: str) -> str:
    """A sentence whose settings are marked, to a user who has typed ``command``; None: it is not known which."""
    return worded(marked) if command is None else worded(marked, partial(_name_in_command, command))


def _name_in_command(command: type, name: str) -> str:
    """What a command calls a setting: its flag, or the flag whose JSON holds it; else its name."""
    if flag(name) in spellings(command):
        name = spellings(command)[flag(name)]
    known_as = _known_as(name, command)
    if known_as is not None:
        return next(each.spellings[0] for each in flags_of(command) if each.name == known_as)
    if "kv_transfer_config" in setting_names(command) and name in _settings_in_json():
        return f"{flag('kv_transfer_config')}: {name}"
    return name


def _settings_in_json() -> set[str]:
    """What `--kv-transfer-config` takes."""
    from tokenyard.connectors.config import SETTINGS, KVTransferConfig  # noqa: PLC0415 - only when something is wrong

    return {each.name for each in fields(KVTransferConfig)} | {name for names in SETTINGS.values() for name in names}
