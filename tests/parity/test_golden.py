"""Decisions recorded from real vLLM are met: who, in which order, how many tokens, which blocks.

Every recording of every version counts: none may be left out but for what its version's profile names as outside, and
each has to be compared at as many steps as it holds. By default the newest version's are replayed, and of each other
version a share (``support/recordings.py``); all of them with ``TOKENYARD_EXAMPLES=all``.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from tests.support.recordings import EVERYTHING, drawn, drawn_of_all, noticed, share, turned_wrongly

from tokenyard.core.outside import OUTSIDE
from tokenyard.core.profiles import PROFILES
from tokenyard.parity.comparison import RecordedVector, recordings
from tokenyard.parity.replay import VectorResult, replay_vector
from tokenyard.parity.vector import GoldenVector, unsupported_features

REPO = Path(__file__).resolve().parent.parent.parent
VECTORS = REPO / "conformance" / "vectors"
FOLDERS = sorted(path for path in VECTORS.iterdir() if path.is_dir())
SHARED = Path(os.environ.get("TOKENYARD_SHARED") or REPO.parent / "shared")


def _steps(folder: Path) -> dict[str, int]:
    steps: dict[str, int] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["steps"]
    return steps


def _shared(folder: str) -> list[Path]:
    return sorted((SHARED / folder).glob("*.jsonl.gz"))


def _name(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


CASES = [
    pytest.param(folder, recording, id=f"{folder.name}-{_name(recording.path)}")
    for folder in FOLDERS
    for recording in drawn(folder, FOLDERS)
]


def _check(recording: RecordedVector, steps: int) -> VectorResult:
    result = replay_vector(recording.path, recording.vllm)
    assert result.difference is None, _told(result)
    if not result.unsupported:
        assert result.steps == steps
    return result


def _told(result: VectorResult) -> str:
    assert result.difference is not None
    tick, what, ours, theirs = result.difference
    return f"{result.name}, tick {tick}: {what}\n  ours:   {ours}\n  theirs: {theirs}"


def _recorded_steps(path: Path) -> int:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return sum("s" in json.loads(line) for line in file)


def test_every_version_has_its_recordings() -> None:
    assert [folder.name for folder in FOLDERS] == list(PROFILES)
    before = None
    for folder in FOLDERS:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        assert manifest["vllm"].startswith(f"{folder.name}.")
        assert manifest["before"] == before
        before = folder.name
        assert len(manifest["steps"]) > 110
        assert min(manifest["steps"].values()) > 0
        assert {_name(path) for path in folder.glob("*.jsonl.gz")} <= manifest["steps"].keys()
        assert sorted(_name(each.path) for each in recordings(folder)) == sorted(manifest["steps"])


@pytest.mark.parametrize(("folder", "recording"), CASES)
def test_our_own_recordings_are_met(folder: Path, recording: RecordedVector) -> None:
    result = _check(recording, _steps(folder)[_name(recording.path)])
    assert result.vllm.startswith(f"{folder.name}.")
    allowed = [f"{feature} of vLLM {folder.name}" for feature in OUTSIDE]
    assert set(result.unsupported) <= set(allowed)


def test_no_recording_is_outside() -> None:
    for folder in FOLDERS:
        headers = [GoldenVector(each.path, each.vllm).header for each in recordings(folder)]
        assert [header.name for header in headers if unsupported_features(header)] == [], folder.name


@pytest.mark.parametrize("name", ["golden", "golden33"])
def test_shared_recordings_are_met(name: str) -> None:
    files = drawn_of_all(_shared(name))
    if not files:
        pytest.skip("no shared golden vectors here (TOKENYARD_SHARED, or ../shared)")
    for path in files:
        assert _check(RecordedVector(path, None), _recorded_steps(path)).unsupported == []


def test_the_share_has_every_version_and_every_scenario() -> None:
    chosen = {folder: {_name(each.path) for each in share(folder, FOLDERS)} for folder in FOLDERS}
    assert min(map(len, chosen.values())) >= 10
    lacking = {name for folder in FOLDERS for name in _steps(folder)} - set().union(*chosen.values())
    assert lacking == set()


@pytest.mark.skipif(not EVERYTHING, reason="a question about all recordings (TOKENYARD_EXAMPLES=all)")
def test_the_share_notices_every_switch_that_all_notice() -> None:
    by_name = {folder.name: folder for folder in FOLDERS}
    missed = [
        f"{version}: {switch} = {value}"
        for version, switch, value in turned_wrongly()
        if not noticed(version, switch, value, share(by_name[version], FOLDERS))
        and noticed(version, switch, value, recordings(by_name[version]))
    ]
    assert not missed, "\n".join(missed)
