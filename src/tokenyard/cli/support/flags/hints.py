"""What a flag's help says of a default that is worked out later."""

from __future__ import annotations

import tyro.conf

__all__ = ["SLO_FLAG", "Repeated", "Switch", "optional"]

Switch = tyro.conf.FlagCreatePairsOff[bool]
"""Off unless named; there is no ``--no-`` form."""

Repeated = tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]]
"""A flag that may be given several times, each time with one value or more."""
SLO_FLAG = tyro.conf.arg(metavar="NAME=TIME ...", help_behavior_hint="(default: none)")
"""Bounds on latencies, wherever a report is made."""


def optional(metavar: str, otherwise: str) -> object:
    """A flag whose default is worked out later: the help says how."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")
