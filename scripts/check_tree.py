"""Check the annotated tree in CONTRIBUTING.md against the repository, and its shape (part of `make lint`).

Every path drawn must exist, and every folder that holds tracked files must be drawn, or lie in one that says it stands
for what is below it ("..."). No module may import itself, however far round, except where ``MAY_GO_ROUND`` says why;
none names one of a floor above it in a text, except where ``NAMES_PLUGINS`` says why. One module names versions of
vLLM, the table of releases: ``--versions`` prints all that do. Tests use public names.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from import_graph import import_cycle, imports_of, modules_in_strings

__all__ = ["drawn_paths", "main", "private_names", "versions_named"]

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "src" / "tokenyard"
RELEASES = PACKAGE / "core" / "releases.py"
INDENT = 4
MAY_GO_ROUND = {
    ("tokenyard.core.request", "tokenyard.core.kv.hashing"): (
        "the type of a field that the block hasher alone fills and reads; compiled, it is a class of that module"
    ),
    ("tokenyard.workload.record", "tokenyard.workload.readers.plain"): (
        "Workload.save() writes the format of its reader, which checks every line that is written"
    ),
}
"""Imports that close a circle -> why they stay. No other may."""
NAMES_PLUGINS = {
    "tokenyard.plugins": "the groups of entry points, which are called as the packages are that load them",
    "tokenyard.vocabulary": "the policies that are shipped, in the form in which other packages register theirs",
}
"""Modules that name some of a floor above in texts -> why they may. No other does."""
_VERSION = re.compile(r"(?<![\d.])0\.(2[2-9]|[3-9]\d)(\.\d+)?(?![\d.])")
_NAME = re.compile(r"0_(2[2-9]|[3-9]\d)(?!\d)")
_NUMBERS = re.compile(r"\(0, (2[2-9]|[3-9]\d)[,)]")


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


def versions_named(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each version of vLLM that the code of a module names: in a string, a name, or as numbers.

    Docstrings and comments may say which version is described.
    """
    nodes = list(ast.walk(ast.parse(text)))
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            if _VERSION.search(node.value):
                yield node.lineno, repr(node.value)
        elif isinstance(node, ast.Name) and _NAME.search(node.id):
            yield node.lineno, node.id
        elif isinstance(node, ast.Tuple) and _NUMBERS.match(ast.unparse(node)):
            yield node.lineno, ast.unparse(node)


def _naming() -> dict[Path, list[tuple[int, str]]]:
    files = sorted(PACKAGE.rglob("*.py"))
    found = {file.relative_to(REPO): list(versions_named(file.read_text(encoding="utf-8"))) for file in files}
    return {file: named for file, named in found.items() if named}


def private_names(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each private name of the package that a test imports, or reaches by a string.

    ruff (SLF001) finds those that are attributes in the source.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tokenyard"):
            yield from ((node.lineno, each.name) for each in node.names if _is_private(each.name))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "getattr", "delattr")):
            texts = (
                each.value for each in node.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
            yield from ((node.lineno, each) for each in texts if _is_private(each.rpartition(".")[2]))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _upward() -> list[str]:
    """Modules of a floor above that a module loads by a text, which import-linter does not see."""
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    floors = next(each["layers"] for each in contracts if each["type"] == "layers")
    height = {name.strip(): -at for at, floor in enumerate(floors) for name in re.split(r"[|:]", floor)}
    return [
        f"{module} names {named} in a text, which stands on a floor above it"
        for module, several in modules_in_strings(PACKAGE).items()
        for named in sorted(several)
        if module not in NAMES_PLUGINS
        and module.count(".")
        and height[named.split(".")[1]] > height[module.split(".")[1]]
    ]


def main() -> None:
    """Exit 1 and say what is wrong, if anything is."""
    naming = _naming()
    if "--versions" in sys.argv[1:]:
        print(*naming, f"{len(naming)} modules name a version of vLLM", sep="\n")
        return
    paths, whole = drawn_paths((REPO / "CONTRIBUTING.md").read_text())
    problems = [f"drawn but absent: {path}" for path in sorted(paths) if not (REPO / path).exists()]
    problems += [
        f"not drawn: {folder}/"
        for folder in sorted(_tracked_folders() - paths)
        if not any(folder.startswith(f"{parent}/") for parent in whole)
    ]
    problems = [f"The tree in CONTRIBUTING.md is out of date: {problem}" for problem in problems]
    problems += [
        f"{file}:{line} names a version, which only {RELEASES.relative_to(REPO)} may: {text[:60]}"
        for file, named in naming.items()
        for line, text in named
        if REPO / file != RELEASES
    ]
    problems += [
        f"{path.relative_to(REPO)}:{line} uses {name}: test through public names, or give it one"
        for path in sorted((REPO / "tests").rglob("*.py"))
        for line, name in private_names(path.read_text(encoding="utf-8"))
    ]
    problems += _upward()
    if cycle := import_cycle(imports_of(PACKAGE, MAY_GO_ROUND)):
        problems.append("Imports go round in a circle: " + " -> ".join(cycle))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
