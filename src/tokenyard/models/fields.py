"""The fields of a ``config.json``: typed, with errors that name file and field, and a note of which ones were read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from tokenyard.core.config import MAX_COUNT
from tokenyard.errors import MISSING, ConfigError
from tokenyard.files import packaged


@cache
def field_names() -> Any:
    """Return ``field_names.json``, lists of names; not to be changed."""
    return msgspec.json.decode(packaged(__package__, "field_names.json"))


class Fields:
    """One JSON object. ``defaults`` are those of the model's configuration class, for files that rely on them."""

    def __init__(self, where: str, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        self.where = where
        """File, and section of it, as errors name it."""
        self._raw = {**(defaults or {}), **raw}
        self._given = frozenset(raw)
        self.read: set[str] = set()
        """Fields that were requested."""

    def error(self, field: str, fix: str) -> ConfigError:
        """A ConfigError that names this file's field and its value."""
        return ConfigError(f"{self.where}: {field}", self._raw.get(field), fix)

    def missing(self, field: str, fix: str) -> ConfigError:
        """A ConfigError with code ``missing_field`` for a field that is not there."""
        problem = f"is missing: {fix}"
        return ConfigError(f"{self.where}: {field}", self._raw.get(field), problem, code=MISSING)

    def unread(self) -> dict[str, Any]:
        """Fields of the file that were not asked for, with their values."""
        left = self._given - self.read
        return {name: value for name, value in self._raw.items() if name in left}

    def harmless(self, *names: str) -> None:
        """Note that these fields change neither memory nor time here."""
        self.read.update(names)

    def get(self, field: str, default: Any = None) -> Any:
        """The value as it is; ``default`` where there is none, or null."""
        self.read.add(field)
        value = self._raw.get(field)
        return default if value is None else value

    def first(self, *names: str) -> str:
        """The first of these names that has a value, else the first of all; all count as read."""
        self.read.update(names)
        return next((name for name in names if self._raw.get(name) is not None), names[0])

    def count(self, field: str, default: int | None = None, *, low: int = 1, high: int = MAX_COUNT) -> int:
        """A whole number from ``low`` to ``high``; an error where there is none and no default."""
        value = self.get(field)
        if value is None:
            if default is None:
                raise self.missing(field, "give a whole number")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(field, f"give a whole number from {low} to {high}")
        return value

    def flag(self, field: str, *, default: bool = False) -> bool:
        value = self.get(field, default)
        if not isinstance(value, bool):
            raise self.error(field, "give true or false")
        return value

    def text(self, field: str, default: str = "") -> str:
        value = self.get(field, default)
        if not isinstance(value, str):
            raise self.error(field, "give a text")
        return value

    def number(self, field: str, default: float) -> float:
        value = self.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_COUNT:
            raise self.error(field, f"give a number above 0, at most {MAX_COUNT}")
        return float(value)

    def items(self, field: str) -> list[Any]:
        """A list of names or numbers; empty where there is none."""
        value = self.get(field, [])
        if not isinstance(value, list) or any(isinstance(each, list | dict) for each in value):
            raise self.error(field, "give a list of names or numbers")
        return value

    def per_layer(self, field: str, num_layers: int) -> list[Any]:
        """A list with a value for every layer; empty where there is none."""
        values = self.items(field)
        if values and len(values) < num_layers:
            raise self.error(field, f"give a value for each of the {num_layers} layers")
        return values[:num_layers]

    def section(self, field: str, defaults: Mapping[str, Any] | None = None) -> Fields | None:
        """An object inside this one, or None."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(field, "give an object")
        return Fields(f"{self.where}: {field}", value, defaults)
