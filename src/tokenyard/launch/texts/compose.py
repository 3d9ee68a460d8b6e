"""What Compose writes in the place of variables: ``${NAME:-default}`` and the like.

Their values stand in ``.env`` or in the shell; here a default is taken, and what has none stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokenyard.launch.texts.started import Found

__all__ = ["interpolated", "is_compose"]

_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]{0,200}):?([-+])([^{}$]{0,4000})\})")
"""A dollar sign that is meant; a variable with what stands in its place. One with a variable within is left alone."""
_DEEPEST = 60


def is_compose(document: Any) -> bool:
    """Whether a document is a file of Compose."""
    services = document.get("services") if isinstance(document, Mapping) else None
    return isinstance(services, Mapping) and any(isinstance(each, Mapping) for each in services.values())


def interpolated(service: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Found, ...]]:
    """A service with the defaults of its variables, and what is to be said of them."""
    names: dict[str, str] = {}
    written = {name: _written(each, names, _DEEPEST) for name, each in service.items()}
    why = "their defaults in the file are taken: what .env or the shell sets is not read"
    return written, (Found("variables of Compose", ", ".join(names), why),) if names else ()


def _written(value: Any, names: dict[str, str], levels: int) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _of(found, names), value)
    if levels and isinstance(value, list):
        return [_written(each, names, levels - 1) for each in value]
    if levels and isinstance(value, Mapping):
        return {name: _written(each, names, levels - 1) for name, each in value.items()}
    return value


def _of(found: re.Match[str], names: dict[str, str]) -> str:
    name, kind, text = found.groups()
    if name is None:
        return "$"
    names[name] = name
    return text if kind == "-" else ""
