"""Flags and values, as a file or a log has them, in the words of a command line."""

from __future__ import annotations

import json
from typing import Any

from tokenyard.launch.flag_table import flag_table

__all__ = ["flag_words"]


def flag_words(flag: str, value: Any) -> list[str]:
    """The words that say the same; none for None, and for the false of a flag that nothing turns off.

    As vLLM 0.33 reads its files: ``true`` names a flag and ``false`` turns it off, lists are several values, and
    objects are JSON.
    """
    if value is None:
        return []
    if isinstance(value, bool):
        off = "--no-" + flag.removeprefix("--")
        return [flag] if value else [off] if flag_table().named(off, prefixes=False) else []
    if isinstance(value, list | tuple):
        return [flag, *map(_text, value)] if value else []
    return [flag, _text(value)]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else str(value)
