"""Check the annotated tree in CONTRIBUTING.md against the repository, and its shape (part of `make lint`).

Every path drawn must exist, and every folder that holds tracked files must be drawn, or lie in one that says it stands
for what is below it ("..."). No folder of the package may hold more modules than fit a glance, and no module may import
itself, however far round.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

from import_graph import import_cycle, imports_of

__all__ = ["MOST_MODULES", "crowded_folders", "drawn_paths", "main"]

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "src" / "tokenyard"
INDENT = 4
MOST_MODULES = 20
"""In one folder of the package, ``__init__.py`` included."""


def drawn_paths(text: str) -> tuple[set[str], set[str]]:
    """Paths of the first ```` ```tree ```` block: all of them, and those that stand for everything below."""
    block = text.split("```tree\n", 1)[1].split("```", 1)[0]
    paths, whole = set(), set()
    above: list[str] = []
    for line in block.splitlines():
        name, _, note = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // INDENT
        del above[depth:]
        above.append(name.rstrip("/"))
        path = "/".join(above)
        paths.add(path)
        if note.rstrip().endswith("..."):
            whole.add(path)
    return paths, whole


def crowded_folders(package: Path) -> dict[Path, int]:
    """Folders of a package with more than ``MOST_MODULES`` modules, and how many they have."""
    counts = Counter(path.parent for path in package.rglob("*.py"))
    return {folder: count for folder, count in sorted(counts.items()) if count > MOST_MODULES}


def _tracked_folders() -> set[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=REPO, check=True, capture_output=True, text=True).stdout
    return {str(parent) for file in listing.splitlines() for parent in PurePosixPath(file).parents} - {"."}


def main() -> None:
    """Exit 1 and say what is wrong, if anything is."""
    paths, whole = drawn_paths((REPO / "CONTRIBUTING.md").read_text())
    problems = [f"drawn but absent: {path}" for path in sorted(paths) if not (REPO / path).exists()]
    problems += [
        f"not drawn: {folder}/"
        for folder in sorted(_tracked_folders() - paths)
        if not any(folder.startswith(f"{parent}/") for parent in whole)
    ]
    problems = [f"The tree in CONTRIBUTING.md is out of date: {problem}" for problem in problems]
    problems += [
        f"{folder.relative_to(REPO)} has {count} modules, more than {MOST_MODULES}: sort them into folders"
        for folder, count in crowded_folders(PACKAGE).items()
    ]
    if cycle := import_cycle(imports_of(PACKAGE)):
        problems.append("Imports go round in a circle: " + " -> ".join(cycle))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
