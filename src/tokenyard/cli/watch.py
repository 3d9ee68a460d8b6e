"""``tokenyard watch``: the Overview of what a server has done in the last minutes, while it runs."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from rich.markup import escape

from tokenyard.cli.support.console import errors, results
from tokenyard.cli.support.flags import ViewCommand, WatchCommand
from tokenyard.cli.view import show
from tokenyard.errors import ConfigError
from tokenyard.redaction import hidden_users

_PATIENCE_S = 10.0
"""For another viewer's answer."""


def execute(flags: WatchCommand) -> int:
    """Show the newest trace of a directory until interrupted, or open the page of a viewer elsewhere; 0 then."""
    if not (math.isfinite(flags.last) and flags.last > 0):
        raise ConfigError("last", flags.last, "must be a number of seconds above 0")
    if "://" in flags.source:
        return _elsewhere(flags)
    folder = Path(flags.source)
    if not folder.exists():
        raise ConfigError(
            "source", flags.source, "no such directory: name the one to which the server writes its traces"
        )
    view = ViewCommand(paths=(folder,), host=flags.host, port=flags.port, browser=flags.browser)
    return show(view, state=state_of(str(newest_trace(folder)), flags.last))


def newest_trace(folder: Path) -> Path:
    """The steps file that was written last, in a directory or below it. Raises ConfigError if there is none."""
    if folder.is_file():
        return folder.resolve()
    found = [path for path in folder.rglob("*.steps.jsonl") if path.is_file()]
    if not found:
        fix = "holds no *.steps.jsonl yet: start the server with --trace first, or name another directory"
        raise ConfigError("source", str(folder), fix)
    return max(found, key=lambda path: path.stat().st_mtime).resolve()


def state_of(trace: str, last: float) -> str:
    """What the page shows, as its address has it: a trace, followed, of which the last seconds count."""
    return urlencode({"trace": trace, "live": "1", "tab": "overview", "last": f"{last:g}"})


def _elsewhere(flags: WatchCommand) -> int:
    """The page of another viewer, at the trace that it lists first: the newest."""
    parts = urlsplit(flags.source)
    if "@" in parts.netloc:
        raise ConfigError("source", hidden_users(flags.source), "must be an address without a user or password in it")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("source", flags.source, "must be a directory, or the http address of a viewer")
    listed = _listed(urlunsplit((parts.scheme, parts.netloc, "/api/traces", parts.query, "")), flags.source)
    path = next((steps[0] for each in listed if isinstance(steps := each.get("steps"), list) and steps), None)
    if path is None:
        raise ConfigError("source", flags.source, "this viewer lists no trace: start its server with --trace first")
    url = urlunsplit((parts.scheme, parts.netloc, parts.path or "/", parts.query, state_of(str(path), flags.last)))
    results().print(f"Watching at [bold]{escape(url)}[/]", soft_wrap=True)
    if flags.browser:
        from tokenyard.web.serve import open_browser  # noqa: PLC0415 - an extra

        open_browser(url)
    else:
        errors().print("[dim]Open it in a browser.[/]")
    return 0


def _listed(url: str, given: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            found = json.load(answer)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConfigError("source", given, f"no viewer answers there: {reason}") from None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
