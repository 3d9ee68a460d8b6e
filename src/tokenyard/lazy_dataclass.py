"""``dataclass`` whose methods are made when they are first asked for: most of them never are in a run.

    @dataclass(frozen=True, slots=True, kw_only=True)       fields, slots, defaults: at once, as ever
    class Settings: ...                                     __init__, __repr__, __eq__, __hash__: when first looked up

The standard library writes the source of six methods and compiles it while the class is made: half a millisecond a
class, a fifth of what a command takes to start. What one sees of a class is the same: to ``dataclasses.fields``,
``replace``, ``is_dataclass`` and ``inspect.signature``, to pickle, and to classes that derive from it. A type checker
sees ``dataclasses.dataclass``.
"""

from __future__ import annotations

import dataclasses
import sys
from contextlib import contextmanager
from threading import RLock

TYPE_CHECKING = False  # typing's own costs more to import than this whole module
if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - type checkers take it for exported
    from typing import Any

_COMPARING = ("__repr__", "__eq__", "__hash__")


class _Factory:
    """Stands in a signature for a default that is made anew for each object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _MadeLater:
    """Stands for a method until it is looked up; then it is made, and takes its place."""

    __slots__ = ("_name", "_owner")

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, kind: Any | None = None) -> Any:
        owner, name = self._owner, self._name
        if vars(owner).get(name) is self:
            if name == "__init__":
                _put(owner, name, _init_of(owner))
            else:
                made = vars(_like(owner))
                for each in _COMPARING:
                    if isinstance(vars(owner).get(each), _MadeLater):
                        _put(owner, each, made[each])
        return vars(owner)[name].__get__(instance, kind)


def _put(owner: Any, name: str, method: Any) -> None:
    method.__qualname__ = f"{owner.__qualname__}.{name}"
    method.__module__ = owner.__module__
    setattr(owner, name, method)


def _init_of(owner: Any) -> Any:
    """What makes an object of its fields; their annotations are those of the class."""
    is_frozen = owner.__dataclass_params__.frozen
    known: dict[str, object] = {"_set": object.__setattr__, "_factory": _FACTORY}
    by_place, by_name, does = ["self"], ["*"], []
    for each in dataclasses.fields(owner):
        value = given = name = each.name
        if each.default is not dataclasses.MISSING:
            given, known[f"_default_{name}"] = f"{name}=_default_{name}", each.default
        elif each.default_factory is not dataclasses.MISSING:
            given, known[f"_default_{name}"] = f"{name}=_factory", each.default_factory
            value = f"_default_{name}() if {name} is _factory else {name}"
        (by_name if each.kw_only else by_place).append(given)
        does.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(owner, "__post_init__"):
        does.append("self.__post_init__()")
    parameters = ", ".join(by_place + (by_name if len(by_name) > 1 else []))
    body = "\n  ".join(does or ["pass"])
    source = f"def make({', '.join(known)}):\n def __init__({parameters}):\n  {body}\n return __init__"
    scope: dict[str, Any] = {}
    exec(source, vars(sys.modules[owner.__module__]), scope)  # where its annotations mean something
    made = scope["make"](**known)
    made.__annotations__ = {each.name: each.type for each in dataclasses.fields(owner)} | {"return": None}
    return made


def _like(owner: Any) -> Any:
    """A class of the same fields, made by the standard library, which has the other methods."""
    given = []
    for each in dataclasses.fields(owner):
        alike: Any = dataclasses.field(repr=each.repr, hash=each.hash, compare=each.compare)
        given.append((each.name, each.type, alike))
    return dataclasses.make_dataclass(owner.__name__, given, init=False, frozen=True)


def _refuse_changes(owner: Any, own: set[str], *, slots: bool) -> None:
    """Fields are never assigned or deleted but by ``object.__setattr__``."""
    names = frozenset(each.name for each in dataclasses.fields(owner))

    def refuse(self: object, name: str, done: str) -> None:
        if type(self) is owner or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {done} field {name!r}")

    def assign(self: object, name: str, value: object) -> None:
        refuse(self, name, "assign to")
        super(owner, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        refuse(self, name, "delete")
        super(owner, self).__delattr__(name)

    owner.__setattr__, owner.__delattr__ = assign, delete
    if slots:  # of which pickle has to be told
        for name, method in (("__getstate__", _state), ("__setstate__", _set_state)):
            if name not in own:
                setattr(owner, name, method)


def _state(self: Any) -> list[object]:
    """What pickle keeps of a frozen object with slots."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_bases_are_open = RLock()


@contextmanager
def _open_bases(kind: Any, *, frozen: bool) -> Iterator[None]:
    """Have the library take the bases for such as are not frozen: it would compile two methods for each that is."""
    with _bases_are_open:
        bases = [base.__dataclass_params__ for base in kind.__mro__[1:] if "__dataclass_params__" in vars(base)]
        were = [each.frozen for each in bases]
        if bases and any(were) is not frozen:
            raise TypeError("a frozen dataclass derives from frozen ones, and one that is not from none of them")
        for each in bases:
            each.frozen = False
        yield
        for each, was in zip(bases, were, strict=True):
            each.frozen = was


def _process(kind: Any, *, frozen: bool, slots: bool, kw_only: bool, eq: bool, shown: bool) -> Any:
    own = set(vars(kind))
    if kind.__hash__ is None and "__eq__" in own:
        own.discard("__hash__")  # Python has put it there
    with _open_bases(kind, frozen=frozen):
        made = dataclasses.dataclass(kind, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    params = made.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, shown, eq, frozen
    wanted = {"__init__": True, "__repr__": shown, "__eq__": eq, "__hash__": eq and frozen}
    for name, is_wanted in wanted.items():
        if is_wanted and name not in own:
            setattr(made, name, _MadeLater(made, name))
    if eq and not frozen and "__hash__" not in own:
        made.__hash__ = None
    if frozen:
        _refuse_changes(made, own, slots=slots)
    return made


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
        """``dataclasses.dataclass`` with those of its options that are used here; fields take part in ``__init__``."""

        def process(kind: Any) -> Any:
            return _process(kind, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, shown=repr)

        return process if kind is None else process(kind)
