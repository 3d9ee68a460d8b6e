"""Hooks of mkdocs: links that leave the documents become plain text, or lead to the sources where those can be read;
and nothing is loaded from elsewhere, also not what lets pages search that are opened as files.

``SOURCES=https://example.org/tokenyard/blob/main`` in the environment says where the sources are.
"""

from __future__ import annotations

import os
import re
from typing import Any

__all__ = ["on_page_markdown", "on_post_page", "on_post_template"]

_OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\.\./([^)\s]*)\)")
_SHIM = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
"""What the theme's offline plugin would load."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its links out of ``docs/`` replaced."""
    sources = os.environ.get("SOURCES", "").rstrip("/")
    return _OUTSIDE.sub(rf"[\1]({sources}/\2)" if sources else r"\1", markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The page with a script of our own in the place of the theme's."""
    return output.replace(_SHIM, f'<script src="{"../" * page.url.count("/")}images/search.js"></script>')


def on_post_template(output_content: str, **_: Any) -> str:
    """The same of 404.html, which is never opened as a file."""
    return output_content.replace(_SHIM, "")
