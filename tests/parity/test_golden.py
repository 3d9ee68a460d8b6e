"""Decisions recorded from real vLLM 0.22.1 are met: who, in which order, how many tokens, which blocks."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from tokenyard.parity.replay import VectorResult, replay_vector

REPO = Path(__file__).resolve().parent.parent.parent
OURS = REPO / "tests" / "parity" / "vectors"
SHARED = Path(os.environ.get("TOKENYARD_SHARED") or REPO.parent / "shared") / "golden"


replay = cache(replay_vector)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl.gz"))


def _name(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


def _check(path: Path) -> None:
    result = replay(path)
    if result.unsupported:
        assert (result.steps, result.difference) == (0, None), "an unsupported file is not compared at all"
        pytest.skip(f"not supported yet: {', '.join(result.unsupported)}")
    assert result.difference is None, _told(result)
    assert result.steps > 0


def _told(result: VectorResult) -> str:
    assert result.difference is not None
    tick, what, ours, theirs = result.difference
    return f"{result.name}, tick {tick}: {what}\n  ours:   {ours}\n  theirs: {theirs}"


@pytest.mark.parametrize("path", _files(OURS), ids=_name)
def test_our_own_recordings_are_met(path: Path) -> None:
    _check(path)


@pytest.mark.skipif(not _files(SHARED), reason="no shared golden vectors here (TOKENYARD_SHARED, or ../shared)")
@pytest.mark.parametrize("path", _files(SHARED) or [SHARED], ids=_name)
def test_shared_recordings_are_met(path: Path) -> None:
    _check(path)


def test_most_of_our_own_recordings_can_be_replayed() -> None:
    """Skips must not eat the comparison: at least 30 files, 5,000 compared steps."""
    results = [replay(path) for path in _files(OURS)]
    compared = [result for result in results if not result.unsupported]
    assert len(compared) >= 30
    assert sum(result.steps for result in compared) >= 5000
