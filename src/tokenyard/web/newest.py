"""The newest trace, of a folder that a server writes to or of a viewer elsewhere, and the page that follows it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from tokenyard.errors import ConfigError
from tokenyard.redaction import hidden_users

_PATIENCE_S = 10.0
"""For another viewer's answer."""
_LOOK_S = 0.2
"""Seconds between two looks for a first trace."""


def newest_trace(folder: Path, on_waiting: Callable[[str], object] = lambda _: None) -> Path:
    """The steps file that was written last, in a directory or below it; waits for the first one.

    A server makes the directory itself when it has something to write: it may not be there yet, but the one that it
    lies in has to. ``on_waiting`` is called with a sentence, once, where there is none. Raises ConfigError.
    """
    if not folder.absolute().parent.is_dir():
        raise ConfigError(
            "source", str(folder), "no such directory: name the one to which the server writes its traces"
        )
    if not (folder.is_dir() or folder.is_file()) and (folder.exists() or folder.is_symlink()):
        raise ConfigError("source", str(folder), "must be a directory to which a server writes traces, or a trace")
    is_said = False
    while True:
        if folder.is_file():
            return folder.resolve()
        found = [path for path in folder.rglob("*.steps.jsonl") if path.is_file()]
        if found:
            return max(found, key=lambda path: path.stat().st_mtime).resolve()
        if not is_said:
            on_waiting(f"{folder} holds no *.steps.jsonl yet: waiting for the first steps of a server with --trace")
            is_said = True
        time.sleep(_LOOK_S)


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
