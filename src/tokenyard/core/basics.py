"""Attributes that are worked out once, and hooks whose names are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from tokenyard.errors import ConfigError, near_names

# ---------------------------------------------------------------------------------------------------------------------
# An attribute worked out when it is first asked for, then kept.
#
# ``functools.cached_property`` takes a lock for every first question in Python 3.11, which is most of its cost where
# an object is asked each question once: a step's records are. Here two threads that ask at once may both work it out,
# to the same result.

T = TypeVar("T")


class cached_attribute(Generic[T]):  # noqa: N801 - a decorator, named like ``property``
    """Method -> attribute, kept in the object's ``__dict__`` under the method's name."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self.func = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> cached_attribute[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> cached_attribute[T] | T:
        if owner is None:
            return self
        value = self.func(owner)
        # Not a data descriptor: from now on the attribute is found before this is asked.
        owner.__dict__[self._name] = value
        return value


# ---------------------------------------------------------------------------------------------------------------------
# Hooks by their names: a method that is called almost as a hook is would never be called.

_NEAR = 0.85
"""How alike two names are (difflib) of which one is the other, misspelt."""
_NO_HOOKS = frozenset(("bind", "context", "is_bound", "pins"))
"""Names that are never overridden by mistake."""


def check_hook_names(kind: type, seam: str) -> None:
    """Raise ConfigError if the class defines a public name that only looks like a hook of the classes it derives from.

    ``seam`` is what it derives from, in words. Names of one's own begin with an underscore, or are farther from it, or
    stand beside the hook itself, which then calls them (``victim`` and ``select_victim``).
    """
    ours = [base for base in kind.__mro__[1:] if base.__module__.startswith("tokenyard.")]
    known = {name for base in kind.__mro__[1:] for name in vars(base)}
    hooks = sorted({name for base in ours for name in vars(base) if not name.startswith("_")} - _NO_HOOKS)
    theirs = {name for base in kind.__mro__ if base not in ours for name in vars(base)}
    missing = [hook for hook in hooks if hook not in theirs]
    for name in vars(kind):
        if name.startswith("_") or name in known:
            continue
        near = near_names(name, hooks, 1, _NEAR)
        if not near and callable(vars(kind)[name]):
            near = [hook for hook in missing if _is_one_slip(name, hook)]
        if near:
            fix = f"is no hook, so it is never called: did you mean {near[0]}? (One of your own needs another name.)"
            raise ConfigError(seam, f"{kind.__qualname__}.{name}", fix)


def _is_one_slip(name: str, hook: str) -> bool:
    """Return whether one letter of the hook is another, missing or too many, or two change places.

    In a short name that is much, as difflib counts.
    """
    if len(name) == len(hook):
        differ = [i for i in range(len(name)) if name[i] != hook[i]]
        if len(differ) == 2:
            first, last = differ
            return last == first + 1 and name[first] == hook[last] and name[last] == hook[first]
        return len(differ) == 1
    longer, shorter = (name, hook) if len(name) > len(hook) else (hook, name)
    return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
