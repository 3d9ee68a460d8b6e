"""The oldest versions of dependencies that pyproject.toml allows, as requirements for pip.

    python scripts/lower_bounds.py server torch > oldest.txt

Names are extras; what all need comes first. Packages without a version here (of other extras) are left to pip.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^]]*\])?>=(?P<version>[0-9.]+)(?P<rest>.*)")


def lower_bounds(project: dict[str, Any], extras: Sequence[str]) -> list[str]:
    """A requirement of one version for each dependency."""
    named = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    found = []
    for each in named:
        matched = _BOUND.fullmatch(each)
        if matched is None:
            raise SystemExit(f"{each}: give it a lower bound")
        found.append(f"{matched['name']}{matched['extras'] or ''}=={matched['version']}{matched['rest']}")
    return found


def main() -> int:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--without", action="append", default=[], help="a package that is left out")
    flags = parser.parse_args()
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    for each in lower_bounds(tomllib.loads(text)["project"], flags.extras):
        if each.partition("==")[0] not in flags.without:
            print(each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
