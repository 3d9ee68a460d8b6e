"""Regular expressions that are compiled on first use: a run uses few of those that it loads."""

from __future__ import annotations

import re
from typing import Any, cast


class _Pattern:
    """Compiles its pattern when a method is first called, and keeps that method as its own."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        self.__dict__[name] = value
        return value


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """``re.compile`` at the first question; a mistake in ``text`` is found then, and no sooner."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
