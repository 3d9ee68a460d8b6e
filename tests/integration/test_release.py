"""What is given to people: the wheel in an empty environment, the site of the documents, workflows, licences."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from tests.integration.documents import blocks_of

from public_names import PUBLIC
from release_check import wrong_links

REPO = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*words: str | Path, cwd: Path = REPO, **environment: str) -> str:
    """What a program prints; a failure shows all of it."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel_in(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    shutil.copytree(REPO / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    run(sys.executable, *build, SOURCE_DATE_EPOCH="1700000000", TOKENYARD_COMPILE="0")
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_in(tmp_path_factory.mktemp("wheel") / "one")


@pytest.mark.slow
def test_the_same_sources_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    again = wheel_in(tmp_path / "two")
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)].count(
        hashlib.sha256(wheel.read_bytes()).hexdigest()
    ) == 2


@pytest.mark.slow
def test_the_wheel_holds_the_viewer_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "tokenyard/web/static/viewer.html" in names
    assert "tokenyard/py.typed" in names
    assert not [name for name in names if "_compiled" in name], "a checkout's own"
    assert not [name for name in names if not name.startswith(("tokenyard/", "tokenyard-"))]


@pytest.mark.slow
def test_what_the_wheel_says_of_itself_works_outside_the_repository(wheel: Path) -> None:
    (metadata,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    said = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "# Tokenyard" in said
    assert "<!--" not in said
    assert "/raw/main/docs/images/" in said
    assert list(wrong_links(said)) == []
    assert list(wrong_links("[a](docs/why.md) [b](#c)")) == ["docs/why.md is relative", "# is relative"]


def lend_what_is_locked(packages: Path) -> None:
    """Packages of the lock, in its versions, from this environment into another one's, and nothing else: no network."""
    for line in (REPO / "requirements.lock").read_text().splitlines():
        name, is_pinned, version = line.partition("==")
        if not is_pinned or name.startswith("#"):
            continue
        installed = distribution(name)
        assert installed.version == version.split(";")[0].split()[0], name
        own = Path(str(installed.locate_file("")))
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(own / top)


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Without node, without the repository, without rights to write beside it; what it needs comes from the lock."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    lend_what_is_locked(Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip()))
    run(sys.executable, "-m", "pip", "--python", python, "--no-input", "install", "--quiet", "--no-deps", wheel)
    program = tmp_path / "env" / "bin" / "tokenyard"
    place = tmp_path / "place"
    place.mkdir()
    assert run(program, "--version", cwd=place).split()[1] == wheel.name.split("-")[1]
    told = run(program, "run", "chat", "--limit", "3", "--trace", "t", "--json", cwd=place)
    assert json.loads(told)["requests_finished"] > 0
    for command in ("report", "why", "whatif"):
        assert run(program, command, "t", cwd=place)
    run(program, "export", "t", "--html", "page.html", cwd=place)
    assert "</html>" in (place / "page.html").read_text()
    assert "_tokenyard" in run(program, "--print-completion", "bash", cwd=place)


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="`make site` installs the tools of the site")
    run(sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site", NO_MKDOCS_2_WARNING="1")
    home = (tmp_path / "site" / "index.html").read_text()
    assert "the scheduler and the KV-cache manager of an LLM serving engine" in home
    assert not re.search(r"src=.https:", home), "nothing is loaded from elsewhere"
    names = (tmp_path / "site" / "api.html").read_text()
    missing = [f"{each.__module__}.{each.__qualname__}" for each in PUBLIC.values() if inspect.isclass(each)]
    assert [name for name in missing if f'id="{name}"' not in names] == []
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 100_000


def test_every_document_is_in_the_site() -> None:
    """``omitted_files`` warns as well; this names them without building."""
    navigation = (REPO / "mkdocs.yml").read_text()
    assert [path.name for path in (REPO / "docs").glob("*.md") if path.name not in navigation] == []


def test_every_document_is_in_the_list_of_documents() -> None:
    listed = (REPO / "docs" / "README.md").read_text()
    assert [path.name for path in (REPO / "docs").glob("*.md") if f"({path.name}" not in listed] == ["README.md"]


def test_workflows_are_what_github_reads() -> None:
    workflows = sorted((REPO / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) == 4
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


def test_forms_of_issues_are_what_github_reads() -> None:
    forms = REPO / ".github" / "ISSUE_TEMPLATE"
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-issue-config", forms / "config.yml")
    others = sorted(path for path in forms.glob("*.yml") if path.name != "config.yml")
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *others)


def test_workflows_call_what_the_makefile_has() -> None:
    makefile = (REPO / "Makefile").read_text()
    for path in (REPO / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                for line in re.sub(r"\$\{\{.*?\}\}", "", step.get("run", "")).splitlines():
                    if line.startswith("make "):
                        targets = [word for word in line.split()[1:] if "=" not in word]
                        assert [each for each in targets if f"\n{each}:" not in makefile] == []


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text())
    assert citation["version"] in (REPO / "pyproject.toml").read_text()
    assert citation["cff-version"] == "1.2.0"


def test_licences_of_what_is_installed_are_stated() -> None:
    said = run(sys.executable, REPO / "scripts" / "licences.py", REPO / "requirements.lock")
    assert "msgspec" in said
    assert "states none" not in said


def test_the_container_copies_what_there_is() -> None:
    lines = (REPO / "Containerfile").read_text().splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert [name for name in copied if not (REPO / name).exists()] == []
    assert "USER tokenyard" in lines


def test_the_readme_is_short_and_shows_output() -> None:
    text = (REPO / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    assert [block.language for block in blocks_of(text)] == ["sh", "sh", "text", "console"]
