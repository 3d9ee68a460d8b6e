"""Flags and settings: what the library says in the words of the command line, and how numbers are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Any, get_args, get_type_hints

from tyro.constructors import PrimitiveConstructorSpec, PrimitiveTypeInfo

from tokenyard.deploy.vllm_serve.flags import OTHER_NAMES
from tokenyard.errors import shown, worded

__all__ = ["default_of", "flag", "in_words_of", "number_rule", "setting_names", "spellings"]


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


_READERS: dict[type, tuple[str, Callable[[str], Any]]] = {int: ("INT", _whole), float: ("FLOAT", _number)}


def number_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How tyro reads whole numbers and numbers, also where they may be left out."""
    kinds = [each for each in get_args(info.type) or (info.type,) if each is not NoneType]
    if len(kinds) != 1 or kinds[0] not in _READERS:
        return None
    kind: type = kinds[0]
    metavar, read = _READERS[kind]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: read(texts[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


# ---------------------------------------------------------------------------------------------------------------------
# What the library says, in the words of the command line.
#
# The library names settings as its configurations do. Here, and nowhere else, they become the flags that a user
# types.


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


@cache
def setting_names(command: type[Any]) -> set[str]:
    """Settings that a command has a flag for; what stands without a flag (WORKLOAD, TRACE) is none."""
    return set(_flags_of(command))


def _flags_of(command: type) -> Iterator[str]:
    hints = get_type_hints(command, include_extras=True)
    for each in fields(command):
        kind: Any = getattr(hints[each.name], "__origin__", hints[each.name])
        if is_dataclass(kind):
            yield from _flags_of(kind)  # type: ignore[arg-type]  # a class: instances are no hints
        elif "_PositionalMarker" not in str(hints[each.name]) and "Positional" not in str(hints[each.name]):
            yield each.name


@cache
def spellings(command: type[Any]) -> dict[str, str]:
    """Every way in which a flag of a command is written, with its dashes, and the setting that it is."""
    return dict(_spellings(command))


def _spellings(command: type) -> Iterator[tuple[str, str]]:
    hints = get_type_hints(command, include_extras=True)
    for each in fields(command):
        kind: Any = getattr(hints[each.name], "__origin__", hints[each.name])
        if is_dataclass(kind):
            yield from _spellings(kind)  # type: ignore[arg-type]  # a class, as above
        elif each.name in setting_names(command):
            said = [part for part in getattr(hints[each.name], "__metadata__", ()) if hasattr(part, "aliases")]
            names = [part.name for part in said if part.name]
            yield flag(names[-1] if names else each.name), each.name
            yield from ((name, each.name) for part in said for name in part.aliases or ())


def default_of(command: type[Any], setting: str) -> object:
    """What a setting of a command is where it is not given; KeyError if the command has none of that name."""
    hints = get_type_hints(command, include_extras=True)
    for each in fields(command):
        kind: Any = getattr(hints[each.name], "__origin__", hints[each.name])
        if is_dataclass(kind) and setting in setting_names(kind):  # type: ignore[arg-type]  # a class, as below
            return default_of(kind, setting)  # type: ignore[arg-type]  # likewise
        if each.name == setting:
            return each.default
    raise KeyError(setting)


def _known_as(setting: str, command: type) -> str | None:
    """By which name a command has a flag for the setting; None if it has none."""
    known = setting_names(command)
    names = (setting, "policies" if setting == "policy" else "", OTHER_NAMES.get(setting, ""))
    return next((name for name in names if name in known), None)


def in_words_of(command: type | None, marked: str) -> str:
    """A sentence whose settings are marked, to a user who has typed ``command``; None: it is not known which."""
    return worded(marked) if command is None else worded(marked, partial(_said, command))


def _said(command: type, name: str) -> str:
    """What a command calls a setting: its flag, or the flag whose JSON holds it; else its name."""
    known_as = _known_as(name, command)
    if known_as is not None:
        return flag(known_as)
    if "kv_transfer_config" in setting_names(command) and name in _settings_in_json():
        return f"{flag('kv_transfer_config')}: {name}"
    return name


def _settings_in_json() -> set[str]:
    """What `--kv-transfer-config` takes."""
    from tokenyard.connectors.config import SETTINGS, KVTransferConfig  # noqa: PLC0415 - only when something is wrong

    return {each.name for each in fields(KVTransferConfig)} | {name for names in SETTINGS.values() for name in names}
