"""``dataclass`` that takes a third of the time to make a class: a command makes a hundred and fifty before it begins.

The standard library writes the source of six methods for each and compiles it. Here one is compiled, ``__init__``, when
the first object is made or the method is read; the others are closures over the fields' names. What one sees of a
class is the same: to ``dataclasses.fields``, ``replace``, ``is_dataclass`` and ``inspect.signature``, to pickle, and to
classes that derive from it. One with a field that ``__init__`` does not take is left to the library. A type checker
sees ``dataclasses.dataclass``.
"""

from __future__ import annotations

import dataclasses
import sys
from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False  # typing's own costs more to import than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - type checkers take it for exported
    from typing import Any


class _Factory:
    """Stands in a signature for a default that is made anew for each object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init_of(kind: Any, fields: Sequence[dataclasses.Field[Any]], *, frozen: bool) -> Callable[..., None]:
    """What makes an object of its fields."""
    known: dict[str, object] = {"_set": object.__setattr__, "_factory": _FACTORY}
    by_place, by_name, does = ["self"], ["*"], []
    for each in fields:
        value = given = name = each.name
        if each.default is not dataclasses.MISSING:
            given, known[f"_default_{name}"] = f"{name}=_default_{name}", each.default
        elif each.default_factory is not dataclasses.MISSING:
            given, known[f"_default_{name}"] = f"{name}=_factory", each.default_factory
            value = f"_default_{name}() if {name} is _factory else {name}"
        (by_name if each.kw_only else by_place).append(given)
        does.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        does.append("self.__post_init__()")
    parameters = ", ".join(by_place + (by_name if len(by_name) > 1 else []))
    body = "\n  ".join(does or ["pass"])
    source = f"def make({', '.join(known)}):\n def __init__({parameters}):\n  {body}\n return __init__"
    scope: dict[str, Any] = {}
    exec(source, vars(sys.modules[kind.__module__]), scope)  # where its annotations mean something
    init: Callable[..., None] = scope["make"](**known)
    init.__annotations__ = {each.name: each.type for each in fields} | {"return": None}
    return init


class _InitWhenNeeded:
    """Stands for ``__init__`` until that is asked for: of most classes that a command loads it makes no object."""

    __slots__ = ("_fields", "_frozen", "_kind")

    def __init__(self, kind: Any, fields: Sequence[dataclasses.Field[Any]], *, frozen: bool) -> None:
        self._kind, self._fields, self._frozen = kind, fields, frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        kind = self._kind
        init: Any = _named(_init_of(kind, self._fields, frozen=self._frozen), "__init__", kind)
        kind.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _named(method: Any, name: str, kind: Any) -> Any:
    """The method as one of the class."""
    method.__name__, method.__qualname__, method.__module__ = name, f"{kind.__qualname__}.{name}", kind.__module__
    return method


def _values_of(fields: Sequence[dataclasses.Field[Any]]) -> Callable[[object], tuple[object, ...]]:
    """What tells the values of these fields."""
    names = [each.name for each in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _repr_of(fields: Sequence[dataclasses.Field[Any]]) -> Callable[[object], str]:
    names = [each.name for each in fields if each.repr]

    @recursive_repr()
    def shown(self: object) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return shown


def _comparing(fields: Sequence[dataclasses.Field[Any]]) -> dict[str, Callable[..., Any]]:
    """Whether two are equal, and the hash that goes with it."""
    values = _values_of([each for each in fields if each.compare])
    hashed = _values_of([each for each in fields if (each.compare if each.hash is None else each.hash)])

    def equal(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: object) -> int:
        return hash(hashed(self))

    return {"__eq__": equal, "__hash__": hash_of}


def _guards(kind: Any, fields: Sequence[dataclasses.Field[Any]]) -> dict[str, Callable[..., None]]:
    """Fields are never assigned or deleted but by ``object.__setattr__``."""
    names = frozenset(each.name for each in fields)

    def refuse(self: object, name: str, done: str) -> None:
        if type(self) is kind or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {done} field {name!r}")

    def assign(self: object, name: str, value: object) -> None:
        refuse(self, name, "assign to")
        super(kind, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        refuse(self, name, "delete")
        super(kind, self).__delattr__(name)

    return {"__setattr__": assign, "__delattr__": delete}


def _state(self: Any) -> list[object]:
    """What pickle keeps of a frozen object with slots."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _process(kind: Any, *, frozen: bool, slots: bool, kw_only: bool, eq: bool, shown: bool) -> Any:
    own = set(vars(kind))
    if kind.__hash__ is None and "__eq__" in own:
        own.discard("__hash__")  # Python has put it there
    derives = any(map(dataclasses.is_dataclass, kind.__bases__))  # and has to be told whether fields stay as they are
    made = dataclasses.dataclass(
        kind, init=False, repr=False, eq=False, frozen=frozen and derives, slots=slots, kw_only=kw_only
    )
    fields = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _InitWhenNeeded(made, fields, frozen=frozen)}
    if shown:
        methods["__repr__"] = _repr_of(fields)
    if eq:
        methods |= _comparing(fields)
        if not frozen:
            methods["__hash__"] = None
    if frozen:
        methods |= _guards(made, fields)
        if slots:  # of which pickle has to be told
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            is_shared = method in (None, _state, _set_state) or name == "__init__"
            setattr(made, name, method if is_shared else _named(method, name, made))
    params = made.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, shown, eq, frozen
    return made


def _is_plain(kind: Any) -> bool:
    """Whether ``__init__`` takes every field, of those that it inherits as well."""
    own = [each for each in vars(kind).values() if isinstance(each, dataclasses.Field)]
    inherited = [field for base in kind.__bases__ for field in getattr(base, "__dataclass_fields__", {}).values()]
    return all(each.init for each in own + inherited)


if not TYPE_CHECKING:

    def dataclass(
        kind: Any = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002 - the library's word
    ) -> Any:
        """``dataclasses.dataclass`` with those of its options that are used here, and without ``InitVar``."""

        def process(kind: Any) -> Any:
            if not _is_plain(kind):
                return dataclasses.dataclass(kind, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, repr=repr)
            return _process(kind, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, shown=repr)

        return process if kind is None else process(kind)
