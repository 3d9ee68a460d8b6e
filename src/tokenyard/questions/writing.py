"""An answer as something to apply: the user's own file changed, a patch of it, or the line of ``vllm serve``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tokenyard.deploy.changing import changed_text, patch
from tokenyard.deploy.serve_line import MOST_BYTES, read_serve_text
from tokenyard.errors import ConfigError
from tokenyard.files import read_input

Form = Literal["serve", "diff", "file"]
"""The line that starts the server then; a patch of the file that starts it; the file itself, changed in its place."""
_MARK = "@"


def written(source: str | None, changes: Mapping[str, Any], form: Form, why: Sequence[str]) -> str:
    """Return what ``form`` asks for, or after a change of the file which one that was.

    ``source``: the text that starts the server, or the path of its file; ``changes``: settings by name; ``why``:
    sentences that a patch begins with. Raises ConfigError.
    """
    if source is None:
        raise ConfigError("write", form, "nothing says how the server is started: give §serve")
    path = _file_of(source)
    text = source if path is None else read_input(path, MOST_BYTES).decode("utf-8", "replace")
    if path is None and form != "serve":
        raise ConfigError("write", form, "is for a file, and §serve is a line: use serve, or name the file")
    after = changed_text(text, changes)
    if form == "serve" or path is None:
        return f"{read_serve_text(after)}\n"
    if form == "diff":
        return patch(path.as_posix().lstrip("/"), text, after, why)
    path.write_text(after, encoding="utf-8")
    return f"{path} is changed\n"


def _file_of(source: str) -> Path | None:
    name = source.removeprefix(_MARK)
    try:
        return Path(name) if Path(name).is_file() else None
    except (OSError, ValueError):  # a line that is too long for a name
        return None
