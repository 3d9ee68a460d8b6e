"""What a check of a version came to, kept in ``lab/noted.json``: the page of parity is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["PATH", "note", "note_longest", "noted"]

PATH = Path(__file__).resolve().parent / "noted.json"


def noted() -> dict[str, dict[str, Any]]:
    """Version -> check -> figures."""
    found: dict[str, dict[str, Any]] = json.loads(PATH.read_text()) if PATH.exists() else {}
    return found


def note(version: str, check: str, figures: dict[str, Any]) -> None:
    """Take the place of what was noted of this check."""
    known = noted()
    known.setdefault(version, {})[check] = figures
    PATH.write_text(json.dumps(dict(sorted(known.items())), indent=1, sort_keys=True) + "\n")


def note_longest(version: str, check: str, size: str, figures: dict[str, Any]) -> None:
    """The same, unless what is kept is of the same release and a longer run by the figure named ``size``."""
    kept = noted().get(version, {}).get(check, {})
    if kept.get("release") != figures["release"] or kept[size] <= figures[size]:
        note(version, check, figures)
