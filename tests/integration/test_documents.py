"""Every example in README and docs runs, prints what the document shows, and every link leads somewhere."""

from __future__ import annotations

import gzip
import os
import re
from functools import cache
from pathlib import Path

import pytest
from tests.integration.documents import Session, blocks_of
from tests.support.examples import ALL, examples

import docs_site
import tokenyard

REPO = Path(__file__).resolve().parents[2]
RUN = re.compile(r"^```(python|sh)$", re.MULTILINE)
FOLDERS = ("docs", "docs/questions", "docs/tasks")
DOCUMENTS = [REPO / "README.md", *(path for folder in FOLDERS for path in sorted((REPO / folder).glob("*.md")))]
FROM_WITHIN = {"extending.md"}
"""Documents for those who change the package."""
WITH_EXAMPLES = [path for path in DOCUMENTS if RUN.search(path.read_text(encoding="utf-8"))]
LINK = re.compile(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)")
DEEP_IMPORT = re.compile(r"\b(?:from|import) (tokenyard\.[\w.]+)")
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
LONG = "<!-- long -->"
"""A document whose examples take twenty seconds of a processor has it: they run where all examples are asked for."""
NEEDS_DATA = re.compile(r"<!-- needs data: (\S+) as (\S+) -->")
PICTURE = re.compile(r"\]\((?:\.\./)?images/([\w.-]+\.svg)\)")
SITE_PAGES = {*docs_site.PAGES, docs_site.API}
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A directory from which the documents' relative paths work, without letting them write into the repository."""
    (tmp_path / "tests").symlink_to(REPO / "tests")
    (tmp_path / "conformance").symlink_to(REPO / "conformance")
    (tmp_path / "examples").symlink_to(REPO / "examples")
    return tmp_path


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.name)
def test_examples_run_and_print_what_is_shown(path: Path, workplace: Path, request: pytest.FixtureRequest) -> None:
    document = path.read_text(encoding="utf-8")
    if LONG in document and examples(ALL) < ALL:
        pytest.skip("long documents run with TOKENYARD_EXAMPLES=all")
    for packed, name in NEEDS_DATA.findall(document):
        traces: Path = request.getfixturevalue("shared") / "data/traces"
        (workplace / name).write_bytes(gzip.decompress((traces / packed).read_bytes()))
    run_examples(path, workplace)


def run_examples(path: Path, workplace: Path) -> None:
    """Run a document's examples in ``workplace``, and compare what they print with what it shows."""
    document = path.read_text(encoding="utf-8")
    for library in NEEDS.findall(document):
        pytest.importorskip(library, reason=f"the examples of {path.name} need {library}")
    session = Session(workplace)
    printed: str | None = None
    changes: list[tuple[tuple[int, int], str]] = []
    for block in blocks_of(document):
        if block.language in ("python", "sh"):
            printed = session.run(block)
        elif block.language == "text" and block.follows and printed is not None:
            if os.environ.get("TOKENYARD_UPDATE_DOCS"):
                changes.append((block.span, _trimmed(printed)))
            else:
                assert _trimmed(printed) == block.text, (
                    f"{path.name}:{block.line} shows something else: TOKENYARD_UPDATE_DOCS=1 writes what is printed now"
                )
            printed = None
        else:
            printed = None
    _compare_pictures(path, workplace)
    for (start, end), text in reversed(changes):
        document = document[:start] + text + document[end:]
    if changes:
        path.write_text(document, encoding="utf-8")


def _compare_pictures(path: Path, made: Path) -> None:
    """Pictures that the examples draw are those that the document shows."""
    document = path.read_text(encoding="utf-8")
    for name in PICTURE.findall(document):
        if f'Path("{name}")' not in document:
            continue  # drawn by a command of its own
        shown, drawn = REPO / "docs/images" / name, (made / name).read_text(encoding="utf-8")
        if os.environ.get("TOKENYARD_UPDATE_DOCS"):
            shown.write_text(drawn, encoding="utf-8")
        else:
            assert shown.read_text(encoding="utf-8") == drawn, (
                f"{name}: TOKENYARD_UPDATE_DOCS=1 writes what is drawn now"
            )


def _trimmed(printed: str) -> str:
    """Without blanks at the ends of lines and blank lines at both ends, which no reader sees."""
    lines = [line.rstrip() for line in printed.splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def test_examples_import_from_the_front_door_only() -> None:
    deep = [
        f"{path.name}:{block.line} {module}"
        for path in DOCUMENTS
        for block in blocks_of(path.read_text(encoding="utf-8"))
        for module in DEEP_IMPORT.findall(block.text)
        if module not in (*tokenyard.NAMESPACES, "tokenyard.gym") and path.name not in FROM_WITHIN
    ]
    assert not deep, "\n".join(deep)


def test_links_lead_somewhere() -> None:
    broken = []
    for path in DOCUMENTS:
        for file, anchor in LINK.findall(path.read_text(encoding="utf-8")):
            if (
                file.removeprefix("../" if path.parent.name != "docs" and path.parent != REPO else "docs/")
                in SITE_PAGES
            ):
                continue  # scripts write them into the site, whose build looks for anchors
            target = path.parent / file if file else path
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{path.name}: {file}#{anchor}")
    assert not broken, "\n".join(broken)


@cache
def _anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}
