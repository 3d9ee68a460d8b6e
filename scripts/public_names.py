"""The names that programs may rely on, by purpose, and the page of the site that mkdocstrings makes of them.

`tests/unit/public_names.txt` holds them, so that a review sees a name that comes or goes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import tokenyard

__all__ = ["PUBLIC", "SECTIONS", "document", "public_names"]

HEAD = """# API

All that programs may rely on: what `import tokenyard` offers (`from tokenyard import Scheduler, SchedulerConfig`), and
what a few of its packages offer for those who look closer (`from tokenyard.connectors import Match`). Everything else
is private, whatever its name. A name has one place, and is loaded when it is first asked for.
"""


def public_names(namespace: str) -> tuple[str, ...]:
    """What one of `tokenyard.NAMESPACES` offers, in the order of the page."""
    module = import_module(namespace)
    if hasattr(module, "OFFERED"):
        return tuple(name for group in module.OFFERED.values() for names in group.values() for name in names)
    classes = [name for name, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == namespace]
    return tuple(name for name in classes if name not in tokenyard.__all__ and not name.startswith("_"))


def _sections() -> Iterator[tuple[str, dict[str, Any]]]:
    """Heading -> the names below it, with what they stand for."""
    for purpose, modules in tokenyard.OFFERED.items():
        yield purpose, {name: getattr(tokenyard, name) for names in modules.values() for name in names}
    for namespace, purpose in tokenyard.NAMESPACES.items():
        module = import_module(namespace)
        yield f"`{namespace}`: {purpose}", {name: getattr(module, name) for name in public_names(namespace)}


SECTIONS = list(_sections())
PUBLIC = {name: value for _, names in SECTIONS for name, value in names.items()}


def document() -> str:
    """The page: a heading for each purpose, and below it a line of mkdocstrings' for each name."""
    return "\n".join([HEAD, *_entries()]) + "\n"


def _entries() -> Iterator[str]:
    for heading, names in SECTIONS:
        yield f"## {heading}\n"
        for name, value in names.items():
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"::: {value.__module__}.{value.__qualname__}\n"
            else:
                yield f"### `{name}`\n\nThe installed version, or `unknown` where it runs from a bare source tree.\n"
