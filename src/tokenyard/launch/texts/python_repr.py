"""Values as Python prints them in a log: literals, dataclasses and enumerations, read without running anything."""

from __future__ import annotations

import ast
import re
from typing import Any

__all__ = ["ReprError", "read_repr"]

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?|inf|nan)(?![\w.])")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_MEMBER = re.compile(r"<\w+(?:\.\w+)*\.(\w+): [^<>]{0,200}>")
_OBJECT = re.compile(r"<[^<>]{0,500}>")
_CONSTANTS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
_BRACKETS = {"{": "}", "[": "]", "(": ")"}
_DEEPEST = 40
_MOST = 1 << 16


class ReprError(ValueError):
    """A text is no such value, or more of it than is read."""


def read_repr(text: str, at: int = 0) -> Any:
    """The value that begins at ``at``; what stands behind it does not matter. Raises ReprError.

    A dataclass becomes a mapping of its fields, a member of an enumeration its name, any other object None.
    """
    return _Reader(text[at : at + _MOST]).value(_DEEPEST)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self, levels: int) -> Any:
        if levels == 0:
            raise ReprError("is nested too deeply")
        self._space()
        opening = self._text[self._at : self._at + 1]
        if opening in _BRACKETS and opening:
            self._at += 1
            return self._items(_BRACKETS[opening], levels)
        for pattern in (_NUMBER, _STRING, _MEMBER, _OBJECT, _WORD):
            found = pattern.match(self._text, self._at)
            if found is not None:
                self._at = found.end()
                return self._made(pattern, found, levels)
        raise ReprError(f"cannot be read at character {self._at}")

    def _made(self, pattern: re.Pattern[str], found: re.Match[str], levels: int) -> Any:
        if pattern is _MEMBER:
            return found[1]
        if pattern is _OBJECT:
            return None
        if pattern is not _WORD:
            try:
                return ast.literal_eval(found[0].lstrip("+")) if found[0][-1] not in "fn" else float(found[0])
            except (ValueError, SyntaxError, MemoryError):
                raise ReprError(f"cannot be read at character {found.start()}") from None
        if self._text.startswith("(", self._at):
            self._at += 1
            return self._items(")", levels)
        return _CONSTANTS.get(found[0], found[0])

    def _items(self, closing: str, levels: int) -> Any:
        """A list, or a mapping where there are keys (``'a': 1``) or names (``a=1``)."""
        fields: dict[Any, Any] = {}
        items: list[Any] = []
        while True:
            self._space()
            if self._text.startswith(closing, self._at):
                self._at += 1
                return fields if fields or closing == "}" else items
            item = self.value(levels - 1)
            self._space()
            if self._text[self._at : self._at + 1] in (":", "="):
                self._at += 1
                fields[item if isinstance(item, str | int | float) else str(item)] = self.value(levels - 1)
                self._space()
            else:
                items.append(item)
            if self._text.startswith(",", self._at):
                self._at += 1
            elif not self._text.startswith(closing, self._at):
                raise ReprError(f"cannot be read at character {self._at}")

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
