"""Hooks of mkdocs: pages that scripts write, links that leave the documents, and nothing that is loaded from elsewhere.

A page in ``PAGES`` is what its script prints, and is not kept in git. A line
``<!-- printed by lab/NAME.py -->`` in a page is replaced by what that script prints. Links that leave the
documents become plain text, or lead to ``SOURCES=https://example.org/tokenyard/blob/main``, if the environment has it.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = [
    "API",
    "PAGES",
    "PRINTED",
    "on_config",
    "on_files",
    "on_page_content",
    "on_page_markdown",
    "on_post_page",
    "on_post_template",
]

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "models.md": "generate_models",
    "vllm-flags.md": "generate_vllm_flags",
    "parity-map.md": "generate_parity_map",
    "regressions.md": "generate_regressions",
}
"""Page -> the script whose ``document()`` it is."""
API = "api.md"
"""The names that programs may rely on (scripts/public_names.py); mkdocstrings fills in what the source says of them."""
PRINTED = re.compile(r"^<!-- printed by (?:scripts|lab)/(\w+)\.py -->$", re.MULTILINE)
_TITLE = re.compile(r"\A# .*\n")
_UPWARDS = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?:\.\./)+)([^)\s]*)\)")
_SHIM = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
"""What the theme's offline plugin would load."""


def on_config(config: Any, **_: Any) -> Any:
    """Let the scripts and the package be imported."""
    sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "lab"), str(ROOT / "src"), str(ROOT)]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the pages that scripts write."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - of the site's build alone

    pages = {name: import_module(script).document() for name, script in PAGES.items()}
    pages[API] = import_module("public_names").document()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with what scripts print in it, and with its links out of ``docs/`` replaced."""
    markdown = PRINTED.sub(lambda found: _TITLE.sub("", import_module(found[1]).document()), markdown)
    sources, depth = os.environ.get("SOURCES", "").rstrip("/"), page.file.src_uri.count("/")

    def led(found: re.Match[str]) -> str:
        """The link as it is where it stays within the documents."""
        text, upwards, rest = found.groups()
        if upwards.count("../") <= depth:
            return found[0]
        return f"[{text}]({sources}/{rest})" if sources else text

    return _UPWARDS.sub(led, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The page of names without the marks of roles, which docstrings have for Sphinx."""
    return re.sub(r":(?:meth|func|class|attr|mod):\s*", "", html) if page.file.src_uri == API else html


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The page with a script of our own in the place of the theme's."""
    return output.replace(_SHIM, f'<script src="{"../" * page.url.count("/")}images/search.js"></script>')


def on_post_template(output_content: str, **_: Any) -> str:
    """The same of 404.html, which is never opened as a file."""
    return output_content.replace(_SHIM, "")
