"""Decisions recorded from real vLLM are met: who, in which order, how many tokens, which blocks.

Every file counts: none may be left out as unsupported, and each has to be compared at as many steps as it holds.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tokenyard.parity.replay import VectorResult, replay_vector

REPO = Path(__file__).resolve().parent.parent.parent
OURS = REPO / "tests" / "parity" / "vectors"
LATER = sorted(OURS.parent.glob("vectors-*"))
"""The same of later versions, a folder each."""
SHARED = Path(os.environ.get("TOKENYARD_SHARED") or REPO.parent / "shared") / "golden"
STEPS: dict[str, int] = json.loads((OURS / "manifest.json").read_text(encoding="utf-8"))
"""How many steps were recorded, by the name of the file."""
LATER_STEPS: dict[Path, int] = {
    folder / f"{name}.jsonl.gz": steps
    for folder in LATER
    for name, steps in json.loads((folder / "manifest.json").read_text(encoding="utf-8")).items()
}
SHARED_LATER = SHARED.parent / "golden33"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl.gz"))


def _name(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


def _check(path: Path, steps: int) -> None:
    result = replay_vector(path)
    assert result.unsupported == []
    assert result.difference is None, _told(result)
    assert result.steps == steps


def _told(result: VectorResult) -> str:
    assert result.difference is not None
    tick, what, ours, theirs = result.difference
    return f"{result.name}, tick {tick}: {what}\n  ours:   {ours}\n  theirs: {theirs}"


def _recorded_steps(path: Path) -> int:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return sum("s" in json.loads(line) for line in file)


def test_the_manifest_names_exactly_the_files_that_are_there() -> None:
    assert sorted(STEPS) == [_name(path) for path in _files(OURS)]
    assert sorted(LATER_STEPS) == [path for folder in LATER for path in _files(folder)]
    assert min(*STEPS.values(), *LATER_STEPS.values()) > 0


@pytest.mark.parametrize("name", sorted(STEPS))
def test_our_own_recordings_are_met(name: str) -> None:
    _check(OURS / f"{name}.jsonl.gz", STEPS[name])


@pytest.mark.parametrize("path", sorted(LATER_STEPS), ids=lambda path: f"{path.parent.name}-{_name(path)}")
def test_our_own_recordings_of_later_versions_are_met(path: Path) -> None:
    _check(path, LATER_STEPS[path])


@pytest.mark.skipif(not _files(SHARED_LATER), reason="no shared vectors of 0.33 here (TOKENYARD_SHARED, or ../shared)")
@pytest.mark.parametrize("path", _files(SHARED_LATER) or [SHARED_LATER], ids=_name)
def test_shared_recordings_of_a_later_version_are_met(path: Path) -> None:
    _check(path, _recorded_steps(path))


@pytest.mark.skipif(not _files(SHARED), reason="no shared golden vectors here (TOKENYARD_SHARED, or ../shared)")
@pytest.mark.parametrize("path", _files(SHARED) or [SHARED], ids=_name)
def test_shared_recordings_are_met(path: Path) -> None:
    _check(path, _recorded_steps(path))
