"""Where the points are that the shipped constants were fitted to: a public table, read where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["HOW_TO_GET", "PACKAGE", "TABLE", "installed_points"]

PACKAGE = "aiconfigurator-core"
"""On PyPI, Apache-2.0; its repository is github.com/ai-dynamo/aiconfigurator."""
TABLE = "silicon_sample.csv"
HOW_TO_GET = (
    f"pip install {PACKAGE}    # has {TABLE} (github.com/ai-dynamo/aiconfigurator, Apache-2.0)",
    "tokenyard accuracy                 # finds it there; or name a copy: tokenyard accuracy FILE",
)
"""Commands that fetch the table, and compare with it."""


def installed_points() -> Path | None:
    """The table, of the package in this environment; None where it is not installed, or has none."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        found = sorted(path for name in (TABLE, f"{TABLE}.gz") for path in Path(folder).rglob(name))
        if found:
            return found[0]
    return None
