"""An attribute worked out when it is first asked for, then kept.

``functools.cached_property`` takes a lock for every first question in Python 3.11, which is most of its cost where an
object is asked each question once: a step's records are. Here two threads that ask at once may both work it out, to
the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["derived"]

T = TypeVar("T")


class derived(Generic[T]):  # noqa: N801 - a decorator, named like ``property``
    """Method -> attribute, kept in the object's ``__dict__`` under the method's name."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self.func = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> derived[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> derived[T] | T:
        if owner is None:
            return self
        value = self.func(owner)
        # Not a data descriptor: from now on the attribute is found before this is asked.
        owner.__dict__[self._name] = value
        return value
