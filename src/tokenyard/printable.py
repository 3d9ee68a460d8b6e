"""Foreign text without what would steer a terminal: ids, file names and query results may hold anything."""

from __future__ import annotations

__all__ = ["plain", "plain_lines"]


def plain(text: str) -> str:
    """``text`` with a mark in the place of every character that steers a terminal or turns the line around."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def plain_lines(text: str) -> str:
    """The same for text of several lines: line feeds stay."""
    return "\n".join(map(plain, text.split("\n")))
