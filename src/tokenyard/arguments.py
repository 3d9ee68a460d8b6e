"""Arguments of the front door: a keyword that a function does not take is refused with the name that is meant, and so
are values of another kind, with field, value and fix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from math import inf
from numbers import Real
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeGuard, TypeVar, cast

from tokenyard.errors import ConfigError, UnknownArgumentError, near_names

_Function = TypeVar("_Function", bound=Callable[..., object])
Elsewhere = Callable[[str], str | None]
"""What to do with a name that is meant for something else, if it is."""


class _Keywords:
    """Which keyword arguments a function takes."""

    def __init__(
        self, function: Callable[..., object], others: Callable[[], Collection[str]] | None, elsewhere: Elsewhere | None
    ) -> None:
        code = function.__code__
        stop = code.co_argcount + code.co_kwonlyargcount
        self.own = frozenset(code.co_varnames[code.co_posonlyargcount : stop])
        self._in_order = [each for each in code.co_varnames[:stop] if each not in ("self", "cls")]
        self._others, self._elsewhere = others, elsewhere

    def check(self, called: str, given: Mapping[str, Any]) -> None:
        """Raise UnknownArgumentError, in the name of what was ``called``, for an argument that there is not."""
        others = () if self._others is None else self._others()
        for name, value in given.items():
            if name in self.own or name in others:
                continue
            fix = None if self._elsewhere is None else self._elsewhere(name)
            if fix is None:
                known = [*self._in_order, *others]
                close = near_names(name, known, 1)
                fix = f"did you mean {close[0]}?" if close else f"it takes {', '.join(known) or 'none'}"
            raise UnknownArgumentError(called, name, value, fix)


def suggests_keywords(
    *, others: Callable[[], Collection[str]] | None = None, elsewhere: Elsewhere | None = None
) -> Callable[[_Function], _Function]:
    """A decorator: the function raises UnknownArgumentError for a keyword argument that it does not take.

    ``others``: names that it takes as ``**`` besides its own; ``elsewhere`` says where a name belongs that it does not.
    """

    def decorated(function: _Function) -> _Function:
        keywords = _Keywords(function, others, elsewhere)
        own, called = keywords.own, function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def checked(*args: Any, **given: Any) -> object:
            if not own.issuperset(given):
                keywords.check(called, given)
            return function(*args, **given)

        checked.keywords = keywords  # type: ignore[attr-defined]  # a function bears what check_keywords asks for
        return cast(_Function, checked)

    return decorated


def check_keywords(called: str, function: Callable[..., object], given: Mapping[str, Any]) -> None:
    """The same for what passes its arguments on to such a ``function`` and is ``called`` otherwise."""
    function.keywords.check(called, given)  # type: ignore[attr-defined]  # a decorated one has them


def is_number(value: object, low: float = 0.0, *, above: bool = False, below: float = inf) -> TypeGuard[float]:
    """Whether it is a number, and no boolean, from ``low`` on, or ``above`` it, and ``below`` another one."""
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        return False
    number: Any = value
    return bool(low < number < below if above else low <= number < below)


def given_text(field: str, value: object, fix: str = "give a text that is not empty") -> str:
    """A text that is not empty. Raises ConfigError for anything else."""
    if not isinstance(value, str) or not value:
        raise ConfigError(field, value, fix)
    return value


def given_kind(field: str, value: object, kind: type, fix: str | None = None) -> None:
    """Raise ConfigError unless the value is of this class."""
    if not isinstance(value, kind):
        raise ConfigError(field, value, fix or f"give a {kind.__name__}")


def given_function(field: str, value: object, fix: str) -> Callable[..., object] | None:
    """Something to call, or None. Raises ConfigError for anything else."""
    if value is not None and not callable(value):
        raise ConfigError(field, value, fix)
    return value


def given_path(field: str, value: object) -> Path:
    """A path. Raises ConfigError for anything else."""
    path = fspath(value) if isinstance(value, PathLike) else value
    if not isinstance(path, str) or not path:
        raise ConfigError(field, value, "give a path, as a text or a pathlib.Path")
    return Path(path)
