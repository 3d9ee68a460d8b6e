"""The newest trace, of a folder that a server writes to or of a viewer elsewhere, and the page that follows it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from tokenyard.errors import ConfigError
from tokenyard.redaction import hidden_users

_PATIENCE_S = 10.0
"""For another viewer's answer."""


def newest_trace(folder: Path) -> Path:
    """The steps file that was written last, in a directory or below it. Raises ConfigError if there is none."""
    if not folder.exists():
        raise ConfigError(
            "source", str(folder), "no such directory: name the one to which the server writes its traces"
        )
    if folder.is_file():
        return folder.resolve()
    found = [path for path in folder.rglob("*.steps.jsonl") if path.is_file()]
    if not found:
        fix = "holds no *.steps.jsonl yet: start the server with --trace first, or name another directory"
        raise ConfigError("source", str(folder), fix)
    return max(found, key=lambda path: path.stat().st_mtime).resolve()


def following(trace: str, last: float) -> str:
    """What the page shows, as its address has it: a trace, followed, of which the last seconds count."""
    return urlencode({"trace": trace, "live": "1", "tab": "overview", "last": f"{last:g}"})


def page_elsewhere(source: str, last: float) -> str:
    """The address of another viewer's page that follows the trace which it lists first: the newest.

    Raises ConfigError where no viewer answers, or it lists none.
    """
    parts = urlsplit(source)
    if "@" in parts.netloc:
        raise ConfigError("source", hidden_users(source), "must be an address without a user or password in it")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("source", source, "must be a directory, or the http address of a viewer")
    listed = _listed(urlunsplit((parts.scheme, parts.netloc, "/api/traces", parts.query, "")), source)
    path = next((steps[0] for each in listed if isinstance(steps := each.get("steps"), list) and steps), None)
    if path is None:
        raise ConfigError("source", source, "this viewer lists no trace: start its server with --trace first")
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", parts.query, following(str(path), last)))


def _listed(url: str, given: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            found = json.load(answer)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConfigError("source", given, f"no viewer answers there: {reason}") from None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
