"""Check the annotated tree in CONTRIBUTING.md against the repository, and its shape (part of `make lint`).

Every path drawn must exist, and every folder that holds tracked files must be drawn, or lie in one that says it stands
for what is below it ("..."). No module may import itself, however far round.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

from import_graph import import_cycle, imports_of

__all__ = ["drawn_paths", "main"]

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "src" / "tokenyard"
INDENT = 4


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
    if cycle := import_cycle(imports_of(PACKAGE)):
        problems.append("Imports go round in a circle: " + " -> ".join(cycle))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
