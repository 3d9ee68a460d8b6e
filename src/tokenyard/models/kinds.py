"""Kinds of things that data names: what may be given of each, and the object of ours that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from tokenyard.models.expressions import Expressions, Fill

Given = Mapping[str, Any]
"""What names a kind, as ``is``, and gives some of its own."""


class Kind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"holds_if": "if"}):
    """A kind, as a file of them writes it."""

    makes: str
    """The class of the object."""
    fields: dict[str, Any]
    """Fields of that: expressions over ``own`` and ``let``, or objects that are kinds themselves."""
    own: dict[str, Any] = {}
    """What may be given, with defaults: expressions over the file, numbers, texts in quotes, lists of such, objects."""
    let: dict[str, Any] = {}
    """Names for what follows from that."""
    holds_if: Fill = 1
    """Where it comes to nothing there is none of it."""
    otherwise: str = ""
    """The kind that there is then."""
    reads: str = ""
    """Further fields of the file that it has no use for."""
    needs: dict[str, str] = {}
    """Fields without which it is refused, and why."""
    module: str = ""
    """The name of its module within a layer."""
    reads_dtype: bool = False
    """The file says the type of its state."""
    about: dict[str, str] = {}


class Kinds(Struct, forbid_unknown_fields=True):
    """A file of kinds."""

    about: tuple[str, ...]
    kinds: dict[str, Kind]


@cache
def _types(made: type) -> dict[str, Any]:
    return get_type_hints(made)


class Maker:
    """Makes objects by their kinds, from the expressions over one file."""

    def __init__(self, kinds: Mapping[str, Kind], values: Expressions, *among: ModuleType) -> None:
        """``among``: the modules that have the classes."""
        self._kinds = kinds
        self._values = values
        self._among = among

    def own(self, given: Given, **bound: Any) -> dict[str, Any]:
        """What is given of a kind's own, else the defaults, worked out."""
        kind = self._kinds[given["is"]]
        return {name: self._value(name, given.get(name, each), bound) for name, each in kind.own.items()}

    def _value(self, name: str, given: Any, bound: Mapping[str, Any]) -> Any:
        if given is None or isinstance(given, bool | dict):
            return {"is": name, **given} if isinstance(given, dict) else given
        if isinstance(given, list) and any(not isinstance(each, str) for each in given):
            return tuple(self._values.count(each, **bound) for each in given)
        found = self._values.value(joined(given), **bound)
        return found if isinstance(found, str | float | list | tuple) else self._values.whole(given, found)

    def made(self, name: str, own: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> Any:
        """The object of a kind; None where there is none. ``more`` are fields of it that are known."""
        kind, bound = self._kinds[name], dict(own)
        for each, fill in kind.let.items():
            bound[each] = self._values.value(joined(fill), **bound)
        if not self._values.value(kind.holds_if, **bound):
            return self.made(kind.otherwise, own) if kind.otherwise else None
        return self._made(kind, bound, more or {})

    def _made(self, kind: Kind, bound: Mapping[str, Any], more: Mapping[str, Any]) -> Any:
        made = next(getattr(each, kind.makes) for each in self._among if hasattr(each, kind.makes))
        types = _types(made)
        fields = {"hidden_size": "hidden", "conv_dtype": "dtype", **kind.fields}
        return made(
            **more, **{each: self._field(fill, types[each], bound) for each, fill in fields.items() if each in types}
        )

    def _field(self, fill: Any, wanted: Any, bound: Mapping[str, Any]) -> Any:
        """The value of a field, in its type."""
        if isinstance(fill, dict):
            kind = msgspec.convert(fill, Kind)
            return self._made(kind, bound, {}) if self._values.value(kind.holds_if, **bound) else None
        found = self._values.value(joined(fill), **bound)
        if isinstance(found, dict):
            return self.made(found["is"], self.own(found))
        if wanted is int:
            return self._values.whole(fill, found)
        return wanted(found) if wanted is bool or (isinstance(wanted, type) and issubclass(wanted, Enum)) else found


def joined(fill: Any) -> Fill:
    """The terms of a sum as :class:`Expressions` takes them; anything else as it is."""
    return tuple(fill) if isinstance(fill, list) else fill
