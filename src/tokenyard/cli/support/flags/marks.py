"""What the fields of a command say of themselves beside type, default and text."""

from __future__ import annotations

from typing import Annotated, TypeVar

from tokenyard.deploy.settings import Help, Marker
from tokenyard.quick_dataclass import dataclass

_T = TypeVar("_T")

POSITIONAL = Marker("POSITIONAL")
REPEATED = Marker("REPEATED")

Positional = Annotated[_T, POSITIONAL]
"""It stands without a flag."""
Repeated = Annotated[tuple[tuple[str, ...], ...], REPEATED]
"""A flag that may be given several times, each time with one value or more."""


class Command:
    """Base of the sub-commands."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg(Help):
    """What a help says of a flag, and how else the flag is called."""

    name: str | None = None
    """Its name, where that is not the field's."""
    aliases: tuple[str, ...] = ()
    """Further spellings, with their dashes."""


SLO_FLAG = Arg(metavar="NAME=TIME ...", otherwise="none")
"""Bounds on latencies, wherever a report is made."""


def optional(metavar: str, otherwise: str) -> Arg:
    """Describe a flag whose default is worked out later: the help says how."""
    return Arg(metavar=metavar, otherwise=otherwise)
