"""What a flag's help says of a default that is worked out later."""

from __future__ import annotations

import tyro.conf

__all__ = ["default", "optional"]


def optional(metavar: str, otherwise: str) -> object:
    """A flag whose default is worked out later: the help says how."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


def default(text: str) -> object:
    """A switch that is thrown elsewhere if nobody names it: the help says which way."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")
