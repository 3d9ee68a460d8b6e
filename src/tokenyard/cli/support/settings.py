"""Flags that are settings of the library: type, default and help stand once, in the configuration.

@dataclass(frozen=True, slots=True, kw_only=True)
@with_settings
class SchedulerFlags:
    max_num_seqs: int = setting(SchedulerConfig)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import tyro.conf

from tokenyard.cli.support.field_docs import field_docs

__all__ = ["Switch", "setting", "with_settings"]

_Flags = TypeVar("_Flags")

Switch = tyro.conf.FlagCreatePairsOff[bool]
"""Off unless named; there is no ``--no-`` form."""


class _Setting(NamedTuple):
    config: type
    default: object


_SAME = object()


def setting(config: type, *, default: Any = _SAME) -> Any:
    """The flag for the field of ``config`` that has the same name; ``default`` stands in the place of the field's."""
    return _Setting(config, default)


def _default(config: type, name: str) -> object:
    return {field.name: field.default for field in fields(config)}[name]


def with_settings(flags: type[_Flags]) -> type[_Flags]:
    """A class of flags with every :func:`setting` filled in, for ``dataclass`` to take over.

    A switch that is off unless named has no ``--no-`` form, one that is on has.
    """
    for name, value in list(vars(flags).items()):
        if isinstance(value, _Setting):
            default = _default(value.config, name) if value.default is _SAME else value.default
            hint: Any = Switch if default is False else get_type_hints(value.config)[name]
            flags.__annotations__[name] = Annotated[hint, tyro.conf.arg(help=field_docs(value.config)[name])]
            setattr(flags, name, default)
    return flags
