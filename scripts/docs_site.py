"""A hook of mkdocs: links that leave the documents become plain text, or lead to the sources where those can be read.

``SOURCES=https://example.org/tokenyard/blob/main`` in the environment says where.
"""

from __future__ import annotations

import os
import re
from typing import Any

__all__ = ["on_page_markdown"]

_OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\.\./([^)\s]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its links out of ``docs/`` replaced."""
    sources = os.environ.get("SOURCES", "").rstrip("/")
    return _OUTSIDE.sub(rf"[\1]({sources}/\2)" if sources else r"\1", markdown)
