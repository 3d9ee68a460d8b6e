#!/usr/bin/env python3
"""Count code lines and files of every room, and words of documents, beside those of the last tag.

    python scripts/size.py [--rev v0.1.0] [--update]

A code line is no blank line, no comment and no docstring. ``--update`` writes the figures of ``docs/architecture.md``:
code lines and files, and what ``walk.py`` counts.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from walk import walks

__all__ = ["PAGE", "Sizes", "code_lines", "main", "size_table", "sizes", "working_tree"]

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "architecture.md"
MARKS = ("<!-- scripts/size.py -->\n", "<!-- end of scripts/size.py -->\n")
ROOMS = {
    "src/tokenyard": "src",
    "tests": "tests",
    "scripts": "scripts",
    "lab": "lab",
    "benchmarks": "benchmarks",
    "viewer/src": "TypeScript",
}
"""Folder -> the name of what lies in it; a room is a folder below, and ``.`` are files beside those."""
_WRITES = r"`?(scripts|lab)/\w+\.py"
_GENERATED = re.compile(rf"(written|made)\s+by\s+{_WRITES}|{_WRITES}` writes this page", re.IGNORECASE)
TOKENS = 3
_SUFFIXES = (".py", ".pyi", ".ts", ".tsx", ".md")

Sizes = dict[tuple[str, str], tuple[int, int]]
"""(What, room) -> code lines or words, and files."""


def _python_lines(text: str) -> int:
    inside: set[int] = set()
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            inside.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line) and number not in said and (number in inside or not line.startswith("#"))
        for number, line in enumerate(map(str.strip, text.splitlines()), start=1)
    )


def _typescript_lines(text: str) -> int:
    text = re.sub(r"^\s*/\*.*?\*/", "", text, flags=re.MULTILINE | re.DOTALL)
    return sum(bool(line) and not line.startswith("//") for line in map(str.strip, text.splitlines()))


def code_lines(path: str, text: str) -> int:
    """Return the code lines of a file of Python or TypeScript."""
    return _python_lines(text) if path.endswith((".py", ".pyi")) else _typescript_lines(text)


def _documents(path: str, text: str) -> str:
    if not path.startswith("docs/"):
        return "CHANGELOG" if path == "CHANGELOG.md" else "other pages"
    return "docs, generated" if _GENERATED.search(text[:600]) else "docs"


def _counted(path: str, text: str) -> tuple[str, str, int] | None:
    if path.endswith(".md"):
        if path.startswith("lab/pages/"):  # of which pages of docs are made
            return None
        return "words", _documents(path, text), len(text.split())
    for folder, name in ROOMS.items():
        if path.startswith(f"{folder}/"):
            room, _, below = path.removeprefix(f"{folder}/").partition("/")
            return name, room if below else ".", code_lines(path, text)
    return None


def sizes(files: Iterable[tuple[str, str]]) -> Sizes:
    """Return the size of every room, and of every kind of document."""
    lines: Counter[tuple[str, str]] = Counter()
    number: Counter[tuple[str, str]] = Counter()
    for path, text in files:
        if found := _counted(path, text):
            lines[found[:2]] += found[2]
            number[found[:2]] += 1
    return {key: (lines[key], number[key]) for key in number}


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=REPO, check=True, capture_output=True).stdout


def working_tree() -> Iterator[tuple[str, str]]:
    """Yield path and text of every file that git knows or would take in."""
    for path in sorted({*_git("ls-files", "-co", "--exclude-standard").decode().splitlines()}):
        if path.endswith(_SUFFIXES) and (REPO / path).exists():
            yield path, (REPO / path).read_text(encoding="utf-8")


def _at(revision: str) -> Iterator[tuple[str, str]]:
    listed = _git("ls-tree", "-r", "--name-only", revision).decode().splitlines()
    paths = [path for path in listed if path.endswith(_SUFFIXES)]
    asked = "".join(f"{revision}:{path}\n" for path in paths).encode()
    answer = subprocess.run(["git", "cat-file", "--batch"], cwd=REPO, input=asked, check=True, capture_output=True)
    rest = answer.stdout
    for path in paths:
        head, _, rest = rest.partition(b"\n")
        length = int(head.split()[2])
        yield path, rest[:length].decode()
        rest = rest[length + 1 :]


def _last_tag() -> str | None:
    found = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], check=False, cwd=REPO, capture_output=True)
    return found.stdout.decode().strip() or None


def _with_sums(counted: Sizes) -> Sizes:
    whats = [*ROOMS.values(), "words"]
    ordered = sorted(counted, key=lambda key: (whats.index(key[0]), -counted[key][0]))
    result: Sizes = {}
    for what in whats:
        rooms = {key: counted[key] for key in ordered if key[0] == what}
        if rooms:
            result[what, "all"] = (sum(each[0] for each in rooms.values()), sum(each[1] for each in rooms.values()))
            result |= rooms
    return result


def _print(now: Sizes, then: Sizes, revision: str | None) -> None:
    now, then = _with_sums(now), _with_sums(then)
    head = f"{'code lines':>12}{'files':>8}" + (f"{revision[:18]:>20}{'files':>8}{'change':>10}" if revision else "")
    print(f"{'':32}{head}")
    order = [*ROOMS.values(), "words"]
    for key in sorted({*now, *then}, key=lambda key: (order.index(key[0]), key[1] != "all", -now.get(key, (0, 0))[0])):
        (lines, files), (before, number) = now.get(key, (0, 0)), then.get(key, (0, 0))
        name = key[0] if key[1] == "all" else f"  {key[1]}"
        past = f"{before:>20,}{number:>8,}{lines - before:>+10,}" if revision else ""
        print(f"{name:32}{lines:>12,}{files:>8,}{past}")


def size_table(counted: Sizes) -> str:
    """Return what the page says: thousands of code lines and files, and the walks of a request."""
    rows = [
        f"| {'`src/tokenyard/' + room + '/`' if room != '.' else 'files beside them'} | {lines / 1000:.1f} | {files} |"
        for (what, room), (lines, files) in _with_sums(counted).items()
        if what == "src" and room != "all"
    ]
    sums = [
        f"| **{what}** | **{lines / 1000:.1f}** | **{files}** |"
        for (what, room), (lines, files) in _with_sums(counted).items()
        if room == "all" and what != "words"
    ]
    passed = " and ".join(f"{walk.files} files through {name}" for name, walk in walks(TOKENS).items())
    return "\n".join(
        [
            "| | thousand code lines | files |",
            "| --- | ---: | ---: |",
            *sums,
            *rows,
            "",
            f"One request of {TOKENS} tokens passes {passed} (`scripts/walk.py`).",
            "",
        ]
    )


def main() -> None:
    """Print the table, or write that of the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rev", default="", help="the revision to compare with; the last tag where none is named")
    parser.add_argument("--update", action="store_true", help=f"write the table of {PAGE.relative_to(REPO)}")
    arguments = parser.parse_args()
    now = sizes(working_tree())
    if arguments.update:
        before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0], 1)
        PAGE.write_text(before + MARKS[0] + size_table(now) + MARKS[1] + rest.split(MARKS[1], 1)[1], encoding="utf-8")
        return
    revision = arguments.rev or _last_tag()
    _print(now, sizes(_at(revision)) if revision else {}, revision)


if __name__ == "__main__":
    main()
