"""Licences of what a lock file installs, as its packages state them: ``python scripts/licences.py requirements.lock``.

Ends with 1 if one of them states none, or one that asks more of those who pass it on than Apache-2.0 does.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

__all__ = ["licence_of", "main"]

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_STRONG = re.compile(r"\b(A?GPL|SSPL|BUSL|CC-BY-NC)", re.IGNORECASE)
_LONGEST = 60


def licence_of(package: str) -> str | None:
    """What an installed package states: its SPDX expression, else a classifier, else a short text."""
    try:
        stated = metadata(package)
    except PackageNotFoundError:
        return None
    classified = [line.rsplit(" :: ", 1)[-1] for line in stated.get_all("Classifier") or () if "License ::" in line]
    text = (stated["License"] or "").strip()
    short = text if 0 < len(text) <= _LONGEST and "\n" not in text else None
    return stated["License-Expression"] or ", ".join(classified) or short


def main() -> int:
    """Print a line per package."""
    packages = sorted(set(_PINNED.findall(Path(sys.argv[1]).read_text(encoding="utf-8"))), key=str.lower)
    found = {package: licence_of(package) for package in packages}
    for package, licence in found.items():
        print(f"{package:32} {licence or 'states none'}")
    bad = [package for package, licence in found.items() if licence is None or _STRONG.search(licence)]
    if bad:
        print(f"to be looked at: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
