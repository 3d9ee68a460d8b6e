"""Groups of settings: what their help says, and settings that have type, default and help from a configuration.

@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class SchedulerSettings(Settings):
    max_num_seqs: int = setting(SchedulerConfig)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

__all__ = ["NO_SETTING", "OFF_UNLESS_NAMED", "Help", "SameAs", "Settings", "Switch", "setting", "with_settings"]

_Group = TypeVar("_Group")


class Settings:
    """Base of the groups of settings."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """What a help says of a setting, besides the text below it."""

    metavar: str | None = None
    """A word for the value: ``TOKENS``."""
    otherwise: str | None = None
    """What counts where nobody gives it, in words: it is worked out later."""


class SameAs(NamedTuple):
    """The text below the field of this name in ``config`` is that of the setting, too."""

    config: type


class _Marker:
    """Says one thing of a setting, by being there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


OFF_UNLESS_NAMED = _Marker("OFF_UNLESS_NAMED")
"""A switch that a command line turns on by its name; there is no ``--no-`` form."""
NO_SETTING = _Marker("NO_SETTING")
"""A field that keeps what was said, and that nobody gives by itself."""

Switch = Annotated[bool, OFF_UNLESS_NAMED]
"""Off unless named."""


class _Setting(NamedTuple):
    config: type
    default: object


_SAME = object()


def setting(config: type, *, default: Any = _SAME) -> Any:
    """A setting like the field of ``config`` that has the same name; ``default`` is instead of the field's."""
    return _Setting(config, default)


def _default(config: type, name: str) -> object:
    return {field.name: field.default for field in fields(config)}[name]


def with_settings(group: type[_Group]) -> type[_Group]:
    """A class of settings with every :func:`setting` filled in, for ``dataclass`` to take over.

    A switch that is off unless named has no ``--no-`` form on a command line, one that is on has.
    """
    for name, value in list(vars(group).items()):
        if isinstance(value, _Setting):
            default = _default(value.config, name) if value.default is _SAME else value.default
            hint: Any = Switch if default is False else get_type_hints(value.config)[name]
            group.__annotations__[name] = Annotated[hint, SameAs(value.config)]
            setattr(group, name, default)
    return group
