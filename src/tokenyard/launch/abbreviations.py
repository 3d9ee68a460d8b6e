"""The beginning of a long flag stands for the flag, as in argparse, if it is the beginning of no other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tokenyard.errors import ConfigError

__all__ = ["written_out"]

_SHOWN = 12
"""Flags that are named of those that an abbreviation may mean."""


def written_out(word: str, flags: Mapping[str, Hashable]) -> str | None:
    """The flag that ``word`` is the beginning of; None if there is none.

    ``flags``: each long flag, with dashes, and what it names; two names of one thing are no two flags. Raises
    ConfigError where it may be one of several.
    """
    if not word.startswith("--") or len(word) <= len("--"):
        return None
    if word in flags:
        return word
    found = {name: meant for name, meant in flags.items() if name.startswith(word)}
    if len(set(found.values())) > 1:
        names = sorted(found)
        more = ", ..." * (len(names) > _SHOWN)
        raise ConfigError("option", word, f"is ambiguous: it could be {', '.join(names[:_SHOWN])}{more}")
    return min(found, key=len, default=None)
