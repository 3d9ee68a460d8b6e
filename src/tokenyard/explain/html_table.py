"""Tables as a little HTML, for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class HtmlTable(msgspec.Struct, frozen=True):
    """One table; its cells are text."""

    caption: str
    head: Sequence[str]
    """Names of its columns; empty: it has none."""
    rows: Sequence[Sequence[str]]
    if_empty: str = ""
    """What stands in its place where it has no rows; empty: the table without rows."""

    def html(self) -> str:
        """The element."""
        if self.if_empty and not self.rows:
            return f"<p>{escaped(self.if_empty)}</p>"
        columns = f"<thead><tr>{_cells('th', self.head)}</tr></thead>" if self.head else ""
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in self.rows)
        return f"<table><caption>{escaped(self.caption)}</caption>{columns}<tbody>{body}</tbody></table>"


def tables_html(title: str, tables: Iterable[HtmlTable]) -> str:
    """A title and tables. No text is read as markup."""
    return f"<div><p><b>{escaped(title)}</b></p>{''.join(each.html() for each in tables)}</div>"


def escaped(text: str) -> str:
    """The text, none of which is read as markup."""
    from html import escape  # noqa: PLC0415 - with it comes a table of two thousand characters

    return escape(text)


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escaped(text)}</{tag}>" for text in texts)
