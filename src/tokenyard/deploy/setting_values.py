"""Settings by name: which a class has, in which group each stands, and values in the type that it has."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from tokenyard.arguments import given_path
from tokenyard.deploy.settings import NO_SETTING, Settings
from tokenyard.errors import ConfigError, near_names
from tokenyard.patterns import lazy_pattern

_Of = TypeVar("_Of")
_RANGE = lazy_pattern(r"([0-9]{1,18})\.\.([0-9]{1,18})")
_WHOLE = lazy_pattern(r"[+-]?[0-9]{1,18}")
_MOST = 10**18
"""More than any count or seed that is written as a text."""


@cache
def _table(kind: type[Any]) -> Mapping[str, tuple[str, type]]:
    """Name of a setting -> the field of ``kind`` that has its group, and the class of that."""
    hints = get_type_hints(kind)
    return {
        name: (each.name, group)
        for each in fields(kind)
        if isinstance(group := hints[each.name], type) and issubclass(group, Settings) and is_dataclass(group)
        for name, hint in get_type_hints(group, include_extras=True).items()
        if NO_SETTING not in get_args(hint)
    }


def names_of(kind: type) -> list[str]:
    """The names of all settings that ``kind`` has in its groups, sorted."""
    return sorted(_table(kind))


def group_of(kind: type, name: str) -> tuple[str, Any] | None:
    """The field of ``kind`` whose group has the setting, and the setting's type; None if there is none."""
    found = _table(kind).get(name)
    return None if found is None else (found[0], get_type_hints(found[1])[name])


def did_you_mean(name: str, known: Collection[str]) -> str:
    """What is meant, for the end of a sentence; empty where nothing is near."""
    close = near_names(name, known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def value_of(settings: Any, name: str) -> Any:
    """The value of a setting. KeyError if there is none of that name."""
    kind: type = type(settings)
    return getattr(getattr(settings, _table(kind)[name][0]), name)


def default_of(kind: type, name: str) -> Any:
    """What counts where the setting is not given. KeyError if there is none of that name."""
    return getattr(_table(kind)[name][1](), name)


def with_values(settings: _Of, values: Mapping[str, Any]) -> _Of:
    """Return the same settings with other values, by name. Raises ConfigError for a value of another type."""
    kind = type(settings)
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        found = group_of(kind, name)
        assert found is not None, f"{name} is no setting of {kind.__name__}"
        groups.setdefault(found[0], {})[name] = as_value(name, value, found[1])
    parts = {group: replace(getattr(settings, group), **new) for group, new in groups.items()}
    return replace(settings, **parts) if parts else settings  # type: ignore[type-var]  # a dataclass, as fields() asks


def as_value(name: str, value: Any, kind: Any) -> Any:
    """``value``, which may be the text of one, in the type of a setting: JSON is a text, a list a tuple.

    Raises ConfigError.
    """
    kinds = kinds_in(kind)
    if value is None:
        if NoneType in get_args(kind):
            return None
        raise ConfigError(name, value, f"give {_values_of(kinds)}")
    if str in kinds and not isinstance(value, str):
        return str(value) if isinstance(value, Path | int | float) else json_text(name, value)
    if kinds == (bool,) or (bool in kinds and isinstance(value, bool)):
        return _switched(name, value)
    if Path in kinds:
        return given_path(name, value)
    if isinstance(value, bool):
        raise ConfigError(name, value, f"give {_values_of(kinds)}")
    try:
        return _converted(value, kind, kinds)
    except (msgspec.ValidationError, ValueError):
        raise ConfigError(name, value, f"give {_values_of(kinds)}{instead_of_range(name, value)}") from None


def kinds_in(kind: Any) -> tuple[Any, ...]:
    """Return the types that a value may have, without None: those of a union, or the one."""
    several = get_origin(kind) in (Union, UnionType)
    return tuple(each for each in get_args(kind) if each is not NoneType) if several else (kind,)


def _converted(value: Any, kind: Any, kinds: Collection[Any]) -> Any:
    """Convert a value to the type; Python's ways to write a number are among the texts. ValueError, ValidationError."""
    if not isinstance(value, str):
        return msgspec.convert(value, kind, strict=False)
    if float in kinds:
        with suppress(ValueError):
            return float(value)
    found = int(value) if int in kinds and _WHOLE.fullmatch(value) else msgspec.convert(value, kind, strict=False)
    if isinstance(found, int) and abs(found) >= _MOST:
        raise ValueError(value)
    return found


def range_in(text: str) -> tuple[int, int] | None:
    """The ends of a range, ``1..6``; None of any other text."""
    found = _RANGE.fullmatch(text.strip())
    return None if found is None else (int(found[1]), int(found[2]))


def instead_of_range(name: str, value: Any) -> str:
    """What to say beside an error, of a range in the place of one number; empty for any other value."""
    if not isinstance(value, str) or range_in(value) is None:
        return ""
    if name == "replicas":
        return f"; replicas that come and go with the load are --autoscale {value}, or autoscale={value}"
    return "; a range is for what tries several values (plan, sweep, compare and whatif with --set)"


def json_text(name: str, value: object) -> str:
    """The JSON of a value that is no text. Raises ConfigError for one that JSON cannot say."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(name, value, "give a text, or what JSON can say") from None


def _switched(name: str, value: Any) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    try:
        return msgspec.convert(text, bool, strict=False)
    except msgspec.ValidationError:
        raise ConfigError(name, value, "give true or false") from None


def _values_of(kinds: Sequence[Any]) -> str:
    """Return what a setting of one of the types may be, for an error's fix."""
    kind = kinds[0]
    if get_origin(kind) is Literal:
        return f"one of: {', '.join(map(str, get_args(kind)))}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of: {', '.join(str(each.value) for each in kind)}"
    words = {int: "a whole number of at most 18 digits", float: "a number", bool: "true or false"}
    several = {tuple[int, ...]: "whole numbers"}
    return words.get(kind) or several.get(kind) or "a text that it may be"
