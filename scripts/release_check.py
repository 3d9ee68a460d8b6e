"""Checks what ``make release-check`` has built, and prints a line for each thing that is looked at.

``--strict``, as a tag does it: also that the repository has an address. Ends with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import yaml

__all__ = ["wrong_links"]

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADDRESS: str = PROJECT["project"]["urls"]["Repository"]
VERSION: str = PROJECT["project"]["version"]
_LINK = re.compile(r"\]\(([^)#\s]*)[^)]*\)")


def wrong_links(description: str) -> Iterator[str]:
    """Links of a description that lead nowhere from outside the repository, or to a file that it does not have."""
    for link in _LINK.findall(description):
        if not link.startswith(("https://", "http://")):
            yield f"{link or '#'} is relative"
        inside = re.match(rf"{re.escape(ADDRESS)}/(?:blob|raw)/[^/]+/(.*)", link)
        if inside is not None and not (ROOT / inside[1]).exists():
            yield f"{link}: there is no {inside[1]}"


def _of_wheel(path: Path) -> Iterator[str]:
    names = zipfile.ZipFile(path).namelist()
    metadata = message_from_bytes(
        zipfile.ZipFile(path).read(next(name for name in names if name.endswith(".dist-info/METADATA")))
    )
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    lacking = [each for each in PROJECT["tool"]["tokenyard"]["compiled"] if each.replace(".", "/") not in compiled]
    yield from (f"{path.name}: {each} is not compiled" for each in lacking)
    if not any(name.endswith("licenses/LICENSE") for name in names):
        yield f"{path.name} holds no LICENSE"
    yield from (f"README: {each}" for each in wrong_links(str(metadata.get_payload())))
    if metadata["Version"] != VERSION:
        yield f"{path.name} is of version {metadata['Version']}"


def _of_version() -> Iterator[str]:
    if yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] != VERSION:
        yield "CITATION.cff names another version"
    if f"## [{VERSION}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section {VERSION}"


def _of_sdist(path: Path) -> Iterator[str]:
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("pyproject.toml", "setup.py", "LICENSE", "CHANGELOG.md", "src/tokenyard/__init__.py", "tests/conftest.py")
    yield from (f"{path.name} lacks {name}" for name in needed if name not in names)


def _of_sbom(path: Path) -> Iterator[str]:
    told = json.loads(path.read_text(encoding="utf-8"))
    named = {each["name"].lower() for each in told.get("components", ())}
    needed = {re.split(r"[<>=\[]", each)[0].lower() for each in PROJECT["project"]["dependencies"]}
    if told.get("bomFormat") != "CycloneDX" or not needed <= named:
        yield f"{path.name} lacks {', '.join(sorted(needed - named)) or 'its format'}"


def _of_site(folder: Path) -> Iterator[str]:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    built = [folder / (page if page.name != "README.html" else page.with_name("index.html")) for page in pages]
    yield from (f"{path.relative_to(folder)} is not in the site" for path in built if not path.is_file())


def _one(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} holds {len(found)} files {pattern}: make wheel sdist sbom site")
    return found[0]


def main() -> int:
    """Print what was looked at, and what is wrong with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true")
    strict = parser.parse_args().strict
    wheel, sdist = _one(ROOT / "dist", "*.whl"), _one(ROOT / "dist", "*.tar.gz")
    looked = {
        f"wheel {wheel.name}: compiled, licence, README without relative links": _of_wheel(wheel),
        f"sdist {sdist.name}: builds and tests": _of_sdist(sdist),
        f"version {VERSION}: citation and changelog": _of_version(),
        "sbom.json: CycloneDX, every dependency": _of_sbom(ROOT / "dist" / "sbom.json"),
        "site: a page for every document": _of_site(ROOT / "site"),
    }
    is_placeholder = "example.org" in ADDRESS
    wrong = 0
    for what, problems in looked.items():
        found = list(problems)
        wrong += len(found)
        print("\n".join([f"{'wrong' if found else 'good '}  {what}", *(f"         {each}" for each in found)]))
    if is_placeholder:
        print(f"{'wrong' if strict else 'open '}  address: {ADDRESS} is a placeholder (project.urls in pyproject.toml)")
    return 1 if wrong or (strict and is_placeholder) else 0


if __name__ == "__main__":
    sys.exit(main())
