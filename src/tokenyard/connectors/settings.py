"""What a connector's settings may hold; each check raises ConfigError with field, value and fix."""

from __future__ import annotations

import os
from pathlib import Path

from tokenyard.errors import ConfigError

__all__ = ["check_namespace", "check_storage_path", "require_amount", "require_text"]

_HUGE = 1e300
"""Below infinity, which is no amount of anything."""


def require_text(field: str, value: object) -> None:
    """A name of something."""
    if not isinstance(value, str) or not value:
        raise ConfigError(field, value, "give a text that is not empty")


def require_amount(field: str, value: object, *, or_zero: bool = False) -> float:
    """A number above 0 (``or_zero``: from 0) as a float; one that no float can hold is refused as well."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else -1
    if not 0 < number < _HUGE and not (or_zero and number == 0):
        raise ConfigError(field, value, f"give a number {'from' if or_zero else 'above'} 0")
    return float(number)


def check_storage_path(value: object) -> None:
    """``shared_storage_path``: whether it can be written shows when it is used."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError("shared_storage_path", value, "give the path of a folder")


def check_namespace(value: object) -> None:
    """``namespace`` becomes one folder."""
    if not isinstance(value, str) or value in ("", "..") or value != Path(value).name or "\0" in value:
        raise ConfigError("namespace", value, "give a name that is valid for a folder")
