"""Foreign text as it can be shown and written: ids, file names and query results may hold anything."""

from __future__ import annotations

from typing import Any

__all__ = ["plain", "plain_lines", "valid_text", "with_valid_text"]


def plain(text: str) -> str:
    """``text`` with a mark in the place of every character that steers a terminal or turns the line around."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def plain_lines(text: str) -> str:
    """The same for text of several lines: line feeds stay."""
    return "\n".join(map(plain, text.split("\n")))


def valid_text(text: str) -> str:
    """``text`` as UTF-8 can hold it: a lone surrogate, as of a file name that is no UTF-8, becomes '?'."""
    return text.encode("utf-8", "replace").decode()


def with_valid_text(value: Any) -> Any:
    """``value``, of lists and dictionaries, with every text in it made valid."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {with_valid_text(key): with_valid_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_valid_text(item) for item in value]
    return value
