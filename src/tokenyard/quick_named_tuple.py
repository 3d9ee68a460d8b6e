"""``NamedTuple`` that takes a tenth of the time to make a class: a command makes a hundred and sixty before it begins.

The standard library compiles every annotation and a ``__new__`` for each class, and makes five functions that differ in
their names. Here these are shared, and ``__new__`` is compiled when the first object is made or the method is read.
What one sees of a class is the same, to ``inspect.signature``, ``get_type_hints`` and pickle as well. A class that is
generic, too, is left to the library. A type checker sees ``typing.NamedTuple``.
"""

from __future__ import annotations

import sys
from collections import namedtuple

TYPE_CHECKING = False  # typing's own costs more to import than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - type checkers take it for exported

_new_tuple = tuple.__new__
_Getter: Any = type(vars(namedtuple("Single", "field"))["field"])
"""What reads a field of a named tuple; made of its place and a docstring."""


def _new_of(kind: Any) -> Callable[..., Any]:
    """What makes an object of its fields."""
    fields = ", ".join(kind._fields)
    new: Callable[..., Any] = eval(
        f"lambda _cls, {fields}: _new(_cls, ({fields},))" if fields else "lambda _cls: _new(_cls)",
        {"_new": _new_tuple, "__builtins__": {}, "__name__": f"namedtuple_{kind.__name__}"},
    )
    new.__name__, new.__qualname__ = "__new__", f"{kind.__name__}.__new__"
    new.__doc__ = f"Create new instance of {kind.__name__}({fields})"
    new.__defaults__ = tuple(kind._field_defaults.values())
    new.__annotations__ = kind.__annotations__
    return new


class _NewWhenNeeded:
    """Stands for ``__new__`` until that is asked for: of most classes that a command loads it makes no object."""

    __slots__ = ("_kind",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._kind: Any = owner

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        new = _new_of(self._kind)
        self._kind.__new__ = staticmethod(new)  # as it is where a class is made with one
        return new


@classmethod  # type: ignore[misc]  # of the classes that are made below
def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    """Make a new object from a sequence or iterable."""
    made = _new_tuple(cls, iterable)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **given: Any) -> Any:
    """Return a new object replacing specified fields with new values."""
    made = self._make(map(given.pop, self._fields, self))
    if given:
        raise (ValueError if sys.version_info < (3, 13) else TypeError)(f"Got unexpected field names: {list(given)!r}")
    return made


def _repr(self: Any) -> str:
    """Return a nicely formatted representation string."""
    values = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self, strict=False)])
    return f"{self.__class__.__name__}({values})"


def _asdict(self: Any) -> dict[str, Any]:
    """Return a new dict which maps field names to their values."""
    return dict(zip(self._fields, self, strict=False))


def _getnewargs(self: Any) -> tuple[Any, ...]:
    """Return self as a plain tuple.  Used by copy and pickle."""
    return tuple(self)


_SHARED: dict[str, Any] = {
    "__slots__": (),
    "_make": _make,
    "_replace": _replace,
    "__repr__": _repr,
    "_asdict": _asdict,
    "__getnewargs__": _getnewargs,
}
if sys.version_info >= (3, 13):
    _SHARED["__replace__"] = _replace


class _MadeOfFields(type):
    """Makes the class that its annotations describe, a plain one derived from ``tuple``."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        fields = tuple(namespace.setdefault("__annotations__", {}))
        defaults = {field: namespace[field] for field in fields if field in namespace}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default cannot follow one with a default")
        made = {
            "__doc__": f"{name}({', '.join(fields)})",
            **_SHARED,
            **namespace,
            "__new__": _NewWhenNeeded(),
            "_fields": fields,
            "_field_defaults": defaults,
            "__match_args__": fields,
            **{field: _Getter(place, f"Alias for field number {place}") for place, field in enumerate(fields)},
        }
        return type(name, (tuple,), made)


if not TYPE_CHECKING:

    class NamedTuple(metaclass=_MadeOfFields):
        """``typing.NamedTuple`` to derive from."""
