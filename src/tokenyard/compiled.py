"""Whether the modules of the core run compiled: extension modules beside their text, which ``setup.py`` makes.

Python takes an extension module before the text of the same name. ``TOKENYARD_INTERPRETED=1`` has the text run all the
same: a debugger sees Python then. Decisions are the same either way.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

_IN_PLACE = [Path(__file__).parent / "core" / f"_shared{suffix}" for suffix in EXTENSION_SUFFIXES]
"""One of these is there where modules were compiled for this Python."""


def _why_interpreted() -> str | None:
    """Why the core is interpreted; None if it is not."""
    if os.environ.get("TOKENYARD_INTERPRETED", "0") not in ("", "0"):
        return "TOKENYARD_INTERPRETED is set"
    return None if any(each.exists() for each in _IN_PLACE) else "nothing is compiled for this Python"


_interpreted_because = _why_interpreted()


def core_is_compiled() -> bool:
    """Whether the modules that every step passes run compiled; decisions are the same either way."""
    return _interpreted_because is None


def which_core() -> str:
    """Which core runs, in words."""
    return "compiled" if _interpreted_because is None else f"interpreted ({_interpreted_because})"


def prefer_text(folder: str) -> None:
    """Have modules below a folder run from their text, whatever was compiled beside it (``sys.path_hooks``)."""

    def find_text(path: str) -> FileFinder:
        if not path.startswith(folder):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, find_text)
