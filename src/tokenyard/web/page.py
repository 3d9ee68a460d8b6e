"""``GET /``: the viewer, one file, under a policy that lets it load nothing and connect to no other server."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

PAGE = Path(__file__).resolve().parent / "static" / "viewer.html"
_MISSING = """<!doctype html>
<meta charset="utf-8">
<title>Tokenyard: no viewer</title>
<h1>The viewer has not been built</h1>
<p>This package holds no <code>viewer.html</code>. In a checkout, build it with node 18 or newer:</p>
<pre>npm --prefix viewer ci
npm --prefix viewer run build</pre>
<p>and load this page again.</p>
"""


class PageServer:
    """Reads the page anew for every request: a developer of the page only has to reload."""

    def __init__(self, page: Path = PAGE) -> None:
        self._page = page

    def serve(self, request: Request) -> Response:
        """The page, or how to build it."""
        try:
            text = self._page.read_text(encoding="utf-8")
        except OSError:
            return Response(_MISSING, 503, page_headers(""), media_type="text/html")
        return Response(text, headers=page_headers(text), media_type="text/html")


def page_headers(text: str) -> dict[str, str]:
    """The policy under which a page is given out: the scripts that stand in it run, and no others."""
    scripts = " ".join(f"'sha256-{_digest(each)}'" for each in _scripts(text))
    policy = (
        "default-src 'none'",
        # Only the scripts that stand in the file as it is; nothing that is put into the page later runs.
        f"script-src {scripts} 'wasm-unsafe-eval' blob:" if scripts else "script-src 'none'",
        "worker-src blob: data:",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "font-src data:",
        "connect-src 'self' blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {"Content-Security-Policy": "; ".join(policy), "Cache-Control": "no-cache"}


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _scripts(text: str) -> list[str]:
    finder = _ScriptFinder(convert_charrefs=False)
    finder.feed(text)
    finder.close()
    return finder.scripts


class _ScriptFinder(HTMLParser):
    def __init__(self, *, convert_charrefs: bool) -> None:
        super().__init__(convert_charrefs=convert_charrefs)
        self.scripts: list[str] = []
        self._inside: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self._inside = []

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self._inside.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._inside is not None:
            self.scripts.append("".join(self._inside))
            self._inside = None
