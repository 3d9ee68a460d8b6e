"""Which Tokenyard this is."""

from __future__ import annotations

from importlib import metadata


def _installed() -> str:
    """The version of the installed package, or "unknown" where it runs from a bare source tree."""
    try:
        return metadata.version("tokenyard")
    except metadata.PackageNotFoundError:
        return "unknown"


__version__ = _installed()
