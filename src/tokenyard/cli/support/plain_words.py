"""Reads the words of a command line that leave no question; all others are tyro's, and so are help and mistakes.

tyro takes longer to load, and to learn what a command takes, than a short replay lasts. What is read here it would
read alike: a test asks both about drawn command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from tokenyard.cli.support.flag_names import NUMBERS, Flag, flags_of
from tokenyard.cli.support.flags import command_of
from tokenyard.cli.support.flags.marks import POSITIONAL, REPEATED
from tokenyard.deploy.setting_values import instead_of_range
from tokenyard.deploy.settings import OFF_UNLESS_NAMED
from tokenyard.errors import ConfigError
from tokenyard.quick_named_tuple import NamedTuple

if TYPE_CHECKING:
    from tokenyard.cli.support.flags import Command

_FLAG = re.compile(r"--[a-z0-9-]+")


class _NotPlainError(Exception):
    """tyro knows what to do, or to say."""


def read_plainly(arguments: Sequence[str]) -> Command | None:
    """The command with its flags; None where tyro has to look at the words.

    Raises ConfigError for a word that is none of its flag's choices, or no number.
    """
    command = command_of(arguments[0]) if arguments else None
    if command is None:
        return None
    try:
        return _made(command, dict(_values_given(flags_of(cast(type, command)), arguments[1:])))
    except _NotPlainError:
        return None


class _Said(NamedTuple):
    """A flag as it was written, and the words behind it."""

    flag: Flag
    word: str
    values: list[str]


def _values_given(flags: Sequence[Flag], words: Sequence[str]) -> Iterator[tuple[Flag, Any]]:
    said: dict[Flag, Any] = {}
    bare, found = _taken_apart(flags, words)
    for each in found:
        value = _value(each)
        if REPEATED in each.flag.said:
            said[each.flag] = (*said.get(each.flag, ()), value)
        elif each.flag in said:
            raise _NotPlainError
        else:
            said[each.flag] = value
    yield from said.items()
    yield from _placed([each for each in flags if POSITIONAL in each.said], bare)


def _taken_apart(flags: Sequence[Flag], words: Sequence[str]) -> tuple[list[str], list[_Said]]:
    """The words that stand without a flag, all of them together, and the others."""
    known = {word: each for each in flags if POSITIONAL not in each.said for word in _spelt(each)}
    bare: list[str] = []
    found: list[_Said] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if not word.startswith("-"):
            if bare:
                raise _NotPlainError
            bare.append(word)
            while left and not left[-1].startswith("-"):
                bare.append(left.pop())
            continue
        name, equals, value = word.partition("=")
        if not _FLAG.fullmatch(name) or name not in known:
            raise _NotPlainError
        each = known[name]
        values = [value] if equals else []
        most = 0 if equals or each.kind is bool else None if _element(each.kind) is not None else 1
        while left and not left[-1].startswith("-") and (most is None or len(values) < most):
            values.append(left.pop())
        found.append(_Said(each, name, values))
    return bare, found


def _spelt(flag: Flag) -> Iterator[str]:
    yield from flag.spellings
    if flag.kind is bool and OFF_UNLESS_NAMED not in flag.said:
        yield from ("--no-" + each.removeprefix("--") for each in flag.spellings)


def _placed(positional: Sequence[Flag], bare: list[str]) -> Iterator[tuple[Flag, Any]]:
    """Words that stand without a flag, in the order of the fields that take them."""
    for each in positional:
        element = _element(each.kind)
        if element is not None:
            if bare:
                yield each, tuple(_one(each, element, word) for word in bare)
            bare = []
        elif bare:
            yield each, _one(each, each.kind, bare[0])
            bare = bare[1:]
    if bare:
        raise _NotPlainError


def _element(kind: Any) -> Any:
    """What a tuple is of; None for any other type."""
    args = get_args(kind)
    return args[0] if get_origin(kind) is tuple and args[1:] == (Ellipsis,) else None


def _value(said: _Said) -> Any:
    kind, values = said.flag.kind, said.values
    if kind is bool:
        if values:
            raise _NotPlainError
        return said.word in said.flag.spellings
    element = _element(kind)
    if element is not None and REPEATED in said.flag.said:
        kind, element = element, _element(element)
    if element is not None:
        if not values:
            raise _NotPlainError
        return tuple(_one(said.flag, element, word) for word in values)
    if len(values) != 1:
        raise _NotPlainError
    return _one(said.flag, kind, values[0])


def _one(flag: Flag, kind: Any, word: str) -> Any:
    """One word as a value of a type, which is the flag's or what the flag has several of."""
    if get_origin(kind) in (Union, UnionType):
        kinds = [each for each in get_args(kind) if each is not NoneType]
        if len(kinds) != 1:
            raise _NotPlainError
        (kind,) = kinds
    if kind is str:
        return word
    if kind is Path:
        return Path(word)
    if get_origin(kind) is Literal:
        return _chosen(flag, {each: each for each in get_args(kind)}, word)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _chosen(flag, {str(each.value): each for each in kind}, word)
    if kind not in NUMBERS:
        raise _NotPlainError
    try:
        return NUMBERS[kind][1](word)
    except ValueError:
        fix = "give a whole number of at most 18 digits" if kind is int else "give a number"
        raise ConfigError(_name_of(flag), word, f"{fix}{instead_of_range(flag.name, word)}") from None


def _name_of(flag: Flag) -> str:
    return flag.name.upper() if POSITIONAL in flag.said else flag.spellings[0]


def _chosen(flag: Flag, choices: dict[Any, Any], word: str) -> Any:
    if word not in choices:
        raise ConfigError(_name_of(flag), word, f"use one of: {', '.join(map(str, choices))}")
    return choices[word]


def _made(command: type[Command], given: dict[Flag, Any]) -> Command:
    groups: dict[str | None, dict[str, Any]] = {}
    for flag, value in given.items():
        groups.setdefault(flag.group, {})[flag.name] = value
    own, hints = groups.pop(None, {}), get_type_hints(command)
    try:
        return command(**own, **{str(name): hints[str(name)](**values) for name, values in groups.items()})
    except (TypeError, ValueError):
        raise _NotPlainError from None
